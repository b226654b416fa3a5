"""Real models made in a moment: a table of token vectors, and a cross-encoder of one layer, without network."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.models import StaticEmbedding
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertForSequenceClassification, BertModel, BertTokenizerFast

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *(f"##{letter}" for letter in LETTERS)]


def letter_tokenizer() -> Tokenizer:
    """Return a tokenizer whose tokens are letters."""
    vocabulary = {piece: at for at, piece in enumerate(PIECES)}
    tokenizer = Tokenizer(models.WordPiece(vocab=vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def vectors(seed: int) -> torch.Tensor:
    """Return one vector for each token."""
    return torch.randn(len(PIECES), 16, generator=torch.Generator().manual_seed(seed))


class RecordingEmbedding(StaticEmbedding):
    """Token vectors that keep what they are given, prompts included.

    Attributes:
        texts: Every text, in order.
    """

    def __init__(self, seed: int = 0) -> None:
        super().__init__(letter_tokenizer(), embedding_weights=vectors(seed))
        self.texts: list[str] = []

    def preprocess(self, inputs: list[str], prompt: str | None = None, **kwargs: Any) -> Any:
        """Record the texts as they are tokenised."""
        self.texts += [f"{prompt or ''}{text}" for text in inputs]
        return super().preprocess(inputs, prompt=prompt, **kwargs)


def recording_transformer(prompts: Mapping[str, str] | None = None) -> tuple[SentenceTransformer, list[str]]:
    """Return a sentence transformer and the list that its texts go to."""
    module = RecordingEmbedding()
    kwargs: dict[str, Any] = {"prompts": dict(prompts)} if prompts else {}
    return SentenceTransformer(modules=[module], device="cpu", **kwargs), module.texts


def write_static_model(folder: Path, *, seed: int = 0, prompts: Mapping[str, str] | None = None) -> Path:
    """Write a sentence-transformers directory with token vectors drawn from ``seed``."""
    module = StaticEmbedding(letter_tokenizer(), embedding_weights=vectors(seed))
    kwargs: dict[str, Any] = {"prompts": dict(prompts)} if prompts else {}
    SentenceTransformer(modules=[module], device="cpu", **kwargs).save_pretrained(str(folder), create_model_card=False)
    return folder


def write_cross_encoder(folder: Path, *, seed: int = 0) -> Path:
    """Write a directory with a cross-encoder of one layer, as sentence-transformers saves it."""
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = {piece: at for at, piece in enumerate(PIECES)}
    config = BertConfig(
        vocab_size=len(PIECES),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        num_labels=1,
        max_position_embeddings=64,
    )
    torch.manual_seed(seed)
    plain = folder.parent / f"{folder.name}.plain"
    with contextlib.redirect_stderr(io.StringIO()):
        BertForSequenceClassification(config).save_pretrained(plain)
        BertTokenizerFast(vocab=vocabulary, model_max_length=64).save_pretrained(plain)
        CrossEncoder(str(plain), device="cpu").save_pretrained(str(folder), create_model_card=False)
    return folder


def write_bert_encoder(folder: Path, *, seed: int = 0, length: int = 64) -> Path:
    """Write a plain BERT of one layer that reads letters, as transformers saves it; its vectors depend on context."""
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = {piece: at for at, piece in enumerate(PIECES)}
    config = BertConfig(
        vocab_size=len(PIECES),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=length,
        initializer_range=0.5,  # so that a token's neighbours show in its vector
    )
    torch.manual_seed(seed)
    with contextlib.redirect_stderr(io.StringIO()):
        BertModel(config).save_pretrained(folder)
        BertTokenizerFast(vocab=vocabulary, model_max_length=length).save_pretrained(folder)
    return folder
