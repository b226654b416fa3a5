"""Local models: a directory under a name and a revision of its own, in MTEB's registry."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mteb_models import tiny_sentence_transformer
from mteb_world import CORPUS

from crumb_tasks import local_models, model_folders, plugin
from crumb_tasks.errors import UsageError


@pytest.fixture(autouse=True)
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of local models, in this test's folder."""
    path = tmp_path / "config" / "models.json"
    monkeypatch.setenv("CRUMB_TASKS_MODELS", str(path))
    return path


def save_model(folder: Path, seed: int = 0) -> Path:
    """Save a tiny sentence-transformers model and return its folder."""
    texts = [*CORPUS.values(), *(str(number) for number in range(seed))]
    tiny_sentence_transformer(texts).save(str(folder))
    return folder


def test_local_models_are_remembered(models: Path) -> None:
    """What is remembered is read back; a name is replaced, forgotten, and never half written."""
    one = local_models.LocalModel("/models/one", "model2vec", "r1", embed_dim=8)
    local_models.remember("me/one", one)
    local_models.remember(
        "me/two", local_models.LocalModel("/models/two", "cross-encoder", "r2", load={"max_length": 9})
    )

    assert local_models.read_models()["me/one"] == one
    assert json.loads(models.read_text(encoding="utf-8"))["me/one"] == {
        "path": "/models/one",
        "kind": "model2vec",
        "revision": "r1",
        "embed_dim": 8,
    }
    local_models.forget("me/one")
    assert list(local_models.read_models()) == ["me/two"]
    assert sorted(path.name for path in models.parent.iterdir()) == ["models.json", "models.json.lock"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not a JSON file"),
        ("[]", "expected an object"),
    ],
)
def test_broken_file_of_models_is_one_line(models: Path, text: str, reason: str) -> None:
    """The message names the file and what to do; `import mteb` logs it and goes on."""
    models.parent.mkdir()
    models.write_text(text, encoding="utf-8")

    with pytest.raises(UsageError, match=reason) as caught:
        local_models.read_models()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "entry", "reason"),
    [
        ("me/x", {"path": "x", "kind": "gpt", "revision": "1"}, "kind 'gpt'; it must be one of: sentence-transformers"),
        ("me/x", {"pth": "x"}, "'me/x' is no model"),
        ("me/x", None, "'me/x' is no model"),
        ("x", {}, "organisation/model, as in 'me/x'"),
    ],
)
def test_broken_entry_leaves_the_others(
    models: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    *,
    name: str,
    entry: Any,
    reason: str,
) -> None:
    """One line in the log, once, with file and reason; what is broken stays in the file for its owner to correct."""
    one = local_models.LocalModel("/models/one", "model2vec", "r1")
    local_models.remember("me/one", one)
    entries = json.loads(models.read_text(encoding="utf-8")) | {name: entry}
    models.write_text(json.dumps(entries), encoding="utf-8")

    assert local_models.read_models() == local_models.read_models() == {"me/one": one}
    local_models.remember("me/two", one)

    assert json.loads(models.read_text(encoding="utf-8"))[name] == entry
    assert set(local_models.read_models()) == {"me/one", "me/two"}
    (line,) = caplog.messages
    assert reason in line
    assert str(models) in line
    assert "\n" not in line
    monkeypatch.setenv("CRUMB_TASKS_STRICT", "1")
    with pytest.raises(UsageError, match=reason):
        local_models.read_models()


def test_revision_is_of_weights_and_settings(tmp_path: Path) -> None:
    """Two models with one folder name have two revisions; a moved folder keeps its own."""
    one, two = save_model(tmp_path / "a" / "model"), save_model(tmp_path / "b" / "model", seed=3)

    assert model_folders.folder_revision(one) != model_folders.folder_revision(two)
    moved = one.rename(tmp_path / "c")
    assert model_folders.folder_revision(moved) == model_folders.folder_revision(save_model(tmp_path / "d"))
    with pytest.raises(UsageError, match="holds no weights"):
        model_folders.folder_revision(tmp_path / "a")


@pytest.mark.parametrize("name", ["modeling_mine.py", "chat_template.jinja", "1_Pooling/config.json", "vocab.txt"])
def test_whatever_decides_the_output_changes_the_revision(tmp_path: Path, name: str) -> None:
    """Code, templates, vocabularies and settings are part of a model; a README is not."""
    folder = save_model(tmp_path / "model")
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("1", encoding="utf-8")
    before = model_folders.folder_revision(folder), model_folders.folder_stamp(folder)

    (folder / "README.md").write_text("words", encoding="utf-8")
    assert (model_folders.folder_revision(folder), model_folders.folder_stamp(folder)) == before
    (folder / name).write_text("2", encoding="utf-8")

    assert model_folders.folder_revision(folder) != before[0]
    assert model_folders.folder_stamp(folder) != before[1]


def test_weights_are_read_again_only_when_a_file_was_written(models: Path, tmp_path: Path) -> None:
    """The revision that is remembered holds as long as names, sizes and times do."""
    from crumb_tasks.running.directories import name_directory

    folder = save_model(tmp_path / "mine")
    name, model, _ = name_directory(folder)
    entries = json.loads(models.read_text(encoding="utf-8"))
    entries[name]["revision"] = "remembered"
    models.write_text(json.dumps(entries), encoding="utf-8")

    assert name_directory(folder)[1].revision == "remembered"
    weights = next(folder.rglob("*.safetensors"))
    weights.write_bytes(weights.read_bytes())
    assert name_directory(folder)[1].revision == model.revision


def test_processes_at_once_lose_no_model(models: Path) -> None:
    """Eight processes that remember a model at the same time leave eight models."""
    code = (
        "import sys; from crumb_tasks.local_models import LocalModel, remember\n"
        "for turn in range(20): remember(f'me/{sys.argv[1]}', LocalModel('/x', 'model2vec', str(turn)))"
    )
    processes = [subprocess.Popen([sys.executable, "-c", code, str(number)]) for number in range(8)]

    assert [process.wait(timeout=120) for process in processes] == [0] * 8
    assert {name: model.revision for name, model in local_models.read_models().items()} == {
        f"me/{number}": "19" for number in range(8)
    }
    assert sorted(path.name for path in models.parent.iterdir()) == ["models.json", "models.json.lock"]


def test_kind_of_a_folder(tmp_path: Path) -> None:
    """The files of a folder say what loads it; a folder without a model is one line."""
    assert model_folders.folder_kind(save_model(tmp_path / "st")) == "sentence-transformers"
    for name, config, kind in (
        ("m2v", {"model_type": "model2vec"}, "model2vec"),
        ("ce", {"architectures": ["BertForSequenceClassification"]}, "cross-encoder"),
        ("hf", {"architectures": ["BertModel"]}, "sentence-transformers"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(config), encoding="utf-8")
        assert model_folders.folder_kind(tmp_path / name) == kind
    with pytest.raises(UsageError, match="holds no model"):
        model_folders.folder_kind(tmp_path)


def cross_encoder(folder: Path) -> Path:
    """Save a tiny real cross-encoder."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

    words = sorted({word for text in CORPUS.values() for word in text.split()})
    special = ["[UNK]", "[PAD]", "[CLS]", "[SEP]"]
    tokenizer = Tokenizer(WordLevel({word: at for at, word in enumerate([*special, *words])}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    names = dict(zip(("unk_token", "pad_token", "cls_token", "sep_token"), special, strict=True))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    config = BertConfig(vocab_size=len(words) + 4, num_labels=1, pad_token_id=1, **sizes)
    BertForSequenceClassification(config).save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    ("make", "kind"),
    [(save_model, "sentence-transformers"), (cross_encoder, "cross-encoder")],
    ids=["encoder", "pairs"],
)
def test_mteb_loads_a_local_model(
    tmp_path: Path, make: Callable[[Path], Path], kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A remembered directory is a model of MTEB's registry, under its own name and revision."""
    folder = make(tmp_path / "model")
    revision = model_folders.folder_revision(folder)
    assert model_folders.folder_kind(folder) == kind
    local_models.remember("me/local", local_models.LocalModel(str(folder), kind, revision))
    module = sys.modules["mteb.models.model_implementations"]
    monkeypatch.setattr(plugin.registered, "models", [])
    monkeypatch.setattr(module, "MODEL_REGISTRY", dict(module.MODEL_REGISTRY))

    plugin.inject_models(module)
    meta = module.MODEL_REGISTRY["me/local"]
    model: Any = meta.load_model(device="cpu")

    assert (model.mteb_model_meta.name, model.mteb_model_meta.revision) == ("me/local", revision)
    assert meta.is_cross_encoder is (kind == "cross-encoder")


@pytest.mark.parametrize("has_modules", [True, False])
def test_model2vec_folder_is_loaded(tmp_path: Path, *, has_modules: bool) -> None:
    """What model2vec saves is a static model, with sentence-transformers' modules.json (since 0.10) and without."""
    model2vec = pytest.importorskip("model2vec", reason="sentence-transformers reads such folders with model2vec")
    module = tiny_sentence_transformer(list(CORPUS.values()))[0]
    weights = module.embedding.weight.detach().numpy()
    model2vec.StaticModel(vectors=weights, tokenizer=module.tokenizer).save_pretrained(tmp_path / "model")
    if not has_modules:
        (tmp_path / "model" / "modules.json").unlink()
    kind = model_folders.folder_kind(tmp_path / "model")
    assert kind == ("sentence-transformers" if has_modules else "model2vec")

    loaded = local_models.load_local(
        "me/m2v", local=local_models.LocalModel(str(tmp_path / "model"), kind, "1"), device="cpu"
    )

    assert loaded.model.encode(["dog"]).shape == (1, 16)


def test_local_model_whose_folder_is_gone() -> None:
    """One line with the name, the folder, and the file that remembers it."""
    meta = local_models.model_meta("me/gone", local_models.LocalModel("/nowhere/model", "sentence-transformers", "1"))

    with pytest.raises(UsageError, match=r"directory of 'me/gone' is gone: /nowhere/model; .*models\.json"):
        meta.load_model()
