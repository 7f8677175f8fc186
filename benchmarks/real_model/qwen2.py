"""A Qwen2 model from a GGUF file in torch: weights de-quantised, one cache slot per request.

Needs torch, gguf and tokenizers, which are imported when a model is loaded.
"""

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Qwen2", "Tokenizer", "load"]

_CONTROL = 3
"""The type of tokens such as <|im_end|> in a GGUF file."""
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How Qwen2 splits text into words before byte pairs are joined."""


class Shape(NamedTuple):
    """The sizes of a model, as its file states them."""

    layers: int
    heads: int
    kv_heads: int
    width: int
    window_tokens: int
    rope_base: float
    epsilon: float

    @property
    def head_width(self) -> int:
        return self.width // self.heads


def load(path: Path, *, slots: int, window_tokens: int, device: str) -> "tuple[Qwen2, Tokenizer]":
    """Load a model and its tokenizer; `slots` requests of `window_tokens` fit into its cache."""
    gguf: Any = importlib.import_module("gguf")
    reader = gguf.GGUFReader(str(path))
    fields = {name: field.contents() for name, field in reader.fields.items()}
    if fields.get("general.architecture") != "qwen2":
        raise SystemExit(f"{path} holds {fields.get('general.architecture')!r}, not a qwen2 model")
    shape = _shape(fields, window_tokens)
    weights = {
        each.name: gguf.quants.dequantize(each.data, each.tensor_type) for each in reader.tensors
    }
    return Qwen2(shape, weights, slots=slots, device=device), Tokenizer(fields)


def _shape(fields: Mapping[str, Any], window_tokens: int) -> Shape:
    def stated(name: str) -> Any:
        return fields[f"qwen2.{name}"]

    return Shape(
        layers=int(stated("block_count")),
        heads=int(stated("attention.head_count")),
        kv_heads=int(stated("attention.head_count_kv")),
        width=int(stated("embedding_length")),
        window_tokens=min(window_tokens, int(stated("context_length"))),
        rope_base=float(stated("rope.freq_base")),
        epsilon=float(stated("attention.layer_norm_rms_epsilon")),
    )


class Tokenizer:
    """The tokenizer that a GGUF file of Qwen2 describes, and its chat format."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        library: Any = importlib.import_module("tokenizers")
        tokens: list[str] = fields["tokenizer.ggml.tokens"]
        types: list[int] = fields["tokenizer.ggml.token_type"]
        merges = [tuple(each.split(" ", 1)) for each in fields["tokenizer.ggml.merges"]]
        vocabulary = {token: number for number, token in enumerate(tokens)}
        made = library.Tokenizer(library.models.BPE(vocab=vocabulary, merges=merges))
        parts = library.pre_tokenizers
        made.pre_tokenizer = parts.Sequence(
            [
                parts.Split(library.Regex(_WORDS), behavior="isolated"),
                parts.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
        made.decoder = library.decoders.ByteLevel()
        self._made = made
        self._control = {number for number, kind in enumerate(types) if kind == _CONTROL}
        self._begin, self._end = vocabulary["<|im_start|>"], vocabulary["<|im_end|>"]
        last = fields.get("tokenizer.ggml.eos_token_id")
        self.ends = {self._end, vocabulary.get("<|endoftext|>", self._end), int(last or self._end)}

    def encode(self, text: str) -> list[int]:
        """Encode a text; the name of a control token in it is only text."""
        ids: list[int] = self._made.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, tokens: Sequence[int]) -> str:
        return str(self._made.decode([each for each in tokens if each not in self._control]))

    def prompt(self, messages: Sequence[tuple[str, str]]) -> list[int]:
        """Return the tokens of a chat, up to where the assistant's reply begins."""
        tokens: list[int] = []
        for role, text in messages:
            tokens += [self._begin, *self.encode(f"{role}\n{text}"), self._end, *self.encode("\n")]
        return [*tokens, self._begin, *self.encode("assistant\n")]


class Qwen2:
    """The forward pass, with a cache of keys and values for each slot. Replies are greedy."""

    def __init__(
        self, shape: Shape, weights: Mapping[str, Any], *, slots: int, device: str
    ) -> None:
        self._torch: Any = importlib.import_module("torch")
        torch = self._torch
        self.shape = shape
        self._device = device
        self._type = torch.bfloat16 if device.startswith("cuda") else torch.float32
        self._weights = {
            name: torch.from_numpy(array.copy()).to(device, self._type)
            for name, array in weights.items()
        }
        self._weights.setdefault("output.weight", self._weights["token_embd.weight"])
        size = (slots, shape.kv_heads, shape.window_tokens, shape.head_width)
        self._cache = [
            tuple(torch.zeros(size, device=device, dtype=self._type) for _ in range(2))
            for _ in range(shape.layers)
        ]
        half = torch.arange(0, shape.head_width, 2, device=device, dtype=torch.float32)
        angles = torch.arange(shape.window_tokens, device=device, dtype=torch.float32)[:, None]
        angles = angles * (1.0 / shape.rope_base ** (half / shape.head_width))
        angles = torch.cat((angles, angles), dim=-1)
        self._cos, self._sin = angles.cos().to(self._type), angles.sin().to(self._type)

    def read(self, slot: int, tokens: Sequence[int], begin: int) -> int:
        """Put tokens of a prompt into a slot, from place `begin` on; return the next token."""
        torch = self._torch
        places = torch.arange(begin, begin + len(tokens), device=self._device)
        seen = torch.arange(begin + len(tokens), device=self._device)
        mask = seen[None, None, None, :] <= places[None, None, :, None]

        def attend(layer: int, query: Any, key: Any, value: Any) -> Any:
            for cached, fresh in zip(self._cache[layer], (key, value), strict=True):
                cached[slot, :, begin : len(seen)] = fresh[0]
            keys, values = (each[slot : slot + 1, :, : len(seen)] for each in self._cache[layer])
            group = self.shape.heads // self.shape.kv_heads
            return torch.nn.functional.scaled_dot_product_attention(
                query,
                keys.repeat_interleave(group, dim=1),
                values.repeat_interleave(group, dim=1),
                attn_mask=mask,
            )

        ids = torch.tensor([list(tokens)], device=self._device)
        return int(self._forward(ids, places[None], attend)[0])

    def decode(self, last: Mapping[int, tuple[int, int]]) -> dict[int, int]:
        """Return the next token of each slot, from its last token and the place of that one.

        All slots up to the highest one are computed as one batch, so that the cache is not copied.
        """
        torch = self._torch
        slots = sorted(last)
        rows, longest = slots[-1] + 1, 1 + max(place for _, place in last.values())
        ids = torch.zeros((rows, 1), dtype=torch.long)
        places = torch.zeros((rows, 1), dtype=torch.long)
        for slot, (token, place) in last.items():
            ids[slot, 0], places[slot, 0] = token, place
        ids, places = ids.to(self._device), places.to(self._device)
        used = torch.tensor(slots, device=self._device)
        seen = torch.arange(longest, device=self._device)
        mask = (seen[None, :] <= places)[:, None, None, :]

        def attend(layer: int, query: Any, key: Any, value: Any) -> Any:
            for cached, fresh in zip(self._cache[layer], (key, value), strict=True):
                cached[used, :, places[used, 0]] = fresh[used, :, 0]
            keys, values = (each[:rows, :, :longest] for each in self._cache[layer])
            # The heads that share keys stand in for several queries: nothing is repeated.
            shared = query.view(rows, self.shape.kv_heads, -1, self.shape.head_width)
            found = torch.nn.functional.scaled_dot_product_attention(
                shared, keys, values, attn_mask=mask
            )
            return found.view(rows, self.shape.heads, 1, self.shape.head_width)

        tokens = self._forward(ids, places, attend).tolist()
        return {slot: int(tokens[slot]) for slot in slots}

    def _forward(self, ids: Any, places: Any, attend: Any) -> Any:
        """Return the likeliest next token of each row."""
        torch, linear = self._torch, self._torch.nn.functional.linear
        shape, weights = self.shape, self._weights
        rows, length = ids.shape
        with torch.inference_mode():
            cos, sin = self._cos[places][:, None], self._sin[places][:, None]
            hidden = weights["token_embd.weight"][ids]
            for layer in range(shape.layers):
                name = f"blk.{layer}"
                normed = self._normed(hidden, f"{name}.attn_norm.weight")
                query, key, value = (
                    linear(normed, weights[f"{name}.attn_{part}.weight"], self._bias(name, part))
                    .view(rows, length, -1, shape.head_width)
                    .transpose(1, 2)
                    for part in "qkv"
                )
                query, key = (each * cos + _turned(torch, each) * sin for each in (query, key))
                found = attend(layer, query, key, value).transpose(1, 2).reshape(rows, length, -1)
                hidden = hidden + linear(found, weights[f"{name}.attn_output.weight"])
                normed = self._normed(hidden, f"{name}.ffn_norm.weight")
                gate = torch.nn.functional.silu(linear(normed, weights[f"{name}.ffn_gate.weight"]))
                gate = gate * linear(normed, weights[f"{name}.ffn_up.weight"])
                hidden = hidden + linear(gate, weights[f"{name}.ffn_down.weight"])
            last = self._normed(hidden[:, -1], "output_norm.weight")
            return linear(last, weights["output.weight"]).argmax(dim=-1)

    def _bias(self, name: str, part: str) -> Any:
        return self._weights.get(f"{name}.attn_{part}.bias")

    def _normed(self, hidden: Any, name: str) -> Any:
        wide = hidden.float()
        wide = wide * (wide.pow(2).mean(-1, keepdim=True) + self.shape.epsilon).rsqrt()
        return wide.to(self._type) * self._weights[name]


def _turned(torch: Any, each: Any) -> Any:
    first, second = each.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)
