"""Search: an encoder and a corpus become a `Run`, exact, at about the cost of one matrix product.

The only package that multiplies matrices. One idea a module:

- `encoder`: `search_encoder`, the way from model and corpus to Run
- `encoding`: the calls of the model, queries by prompt and documents by block
- `batches`: what the model reads, a torch DataLoader over a block of the Arrow corpus
- `grid`: the fixed tiles in which scores are computed, for any similarity
- `order`: ids as ranks, so that the total order is one integer comparison
- `topk`, `topk_torch`: the running threshold and exact MaxP, on the CPU and on an accelerator
- `candidates`: scores of given pairs only
- `embeddings`: embeddings on disk
- `identity`: what decides a model's document embeddings, for their key
- `resident`: a corpus' vectors in memory, to be searched for single queries
- `compressed`, `approximate`: the same made smaller or faster at the price of exactness; `agreement`: how much of it

Memory: O(queries x depth) for the rankings, plus one block of documents, plus ids, ranks and parents of the corpus
(about 40 bytes a document). Neither texts nor embeddings of the corpus are ever held as a whole.
"""

from __future__ import annotations

from crumb_tasks.search.embeddings import EmbeddingStore
from crumb_tasks.search.encoder import search_encoder

__all__ = ["EmbeddingStore", "search_encoder"]
