"""Modules for `torch_compile.py`, with random weights: the motivating programs, small blocks of common networks, and
models of Hugging Face transformers and torchvision where these are installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch import Tensor, nn  # pyright: ignore[reportMissingImports]

Made = tuple[nn.Module, tuple[Any, ...]]
"""A module and its inputs."""


class Chain(nn.Module):
    """x @ (y @ a + b) @ c, as attention scores with a projected key."""

    def __init__(self) -> None:
        super().__init__()
        self.key, self.out = nn.Linear(64, 768), nn.Linear(768, 64, bias=False)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.out(x @ self.key(y))


class LowRank(nn.Module):
    """Two linear layers without an activation between them, from and to few features."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(64, 1024), nn.Linear(1024, 64)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.up(x)).relu()


class RowSum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Linear(768, 768, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.w(x).sum(-1)


class Towers(nn.Module):
    """Towers of two layers on slices of one input."""

    def __init__(self, count: int = 8) -> None:
        super().__init__()
        self.towers = nn.ModuleList(nn.Sequential(nn.Linear(64, 128), nn.Linear(128, 32)) for _ in range(count))

    def forward(self, x: Tensor) -> Tensor:
        parts = x.chunk(len(self.towers), -1)
        return torch.cat([tower(part) for tower, part in zip(self.towers, parts, strict=True)], -1)


class PermutedNorm(nn.Module):
    """Elementwise work between transposes."""

    def forward(self, x: Tensor) -> Tensor:
        return ((x.transpose(1, 2) * 2 + 1).relu().transpose(1, 2) * 3).sum(1)


class Attention(nn.Module):
    """Multi-head attention; `whole` uses torch's one operator, else products and a softmax."""

    def __init__(self, width: int = 256, heads: int = 4, whole: bool = True) -> None:
        super().__init__()
        self.heads, self.whole = heads, whole
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in "qkvo")

    def forward(self, x: Tensor) -> Tensor:
        b, n, c = x.shape
        q, k, v = (part(x).view(b, n, self.heads, -1).transpose(1, 2) for part in (self.q, self.k, self.v))
        if self.whole:
            mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        else:
            mixed = ((q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5).softmax(-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(b, n, c))


class TransformerBlock(nn.Module):
    def __init__(self, width: int = 256, whole: bool = True) -> None:
        super().__init__()
        self.mix = nn.Sequential(nn.LayerNorm(width), Attention(width, whole=whole))
        self.mlp = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.mix(x)
        return x + self.mlp(x)


class GatedMlp(nn.Module):
    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(width)
        self.gate, self.up = (nn.Linear(width, 3 * width, bias=False) for _ in "gu")
        self.down = nn.Linear(3 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))


class Mixer(nn.Module):
    """A block of MLP-Mixer."""

    def __init__(self, tokens: int = 64, width: int = 128) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        sizes = ((tokens, 2 * tokens), (width, 4 * width))
        self.mlps = nn.ModuleList(nn.Sequential(nn.Linear(n, m), nn.GELU(), nn.Linear(m, n)) for n, m in sizes)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.mlps[0](self.norms[0](x).transpose(1, 2)).transpose(1, 2)
        return x + self.mlps[1](self.norms[1](x))


class ResidualBlock(nn.Module):
    """Two convolutions with batch norms, as in ResNet."""

    def __init__(self, channels: int = 32) -> None:
        super().__init__()
        parts = [(nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)) for _ in range(2)]
        self.body = nn.Sequential(*parts[0], nn.ReLU(), *parts[1])

    def forward(self, x: Tensor) -> Tensor:
        return (x + self.body(x)).relu()


class RepVgg(nn.Module):
    """Parallel convolutions of one image, and the image itself."""

    def __init__(self, channels: int = 32) -> None:
        super().__init__()
        self.wide = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels))
        self.narrow = nn.Sequential(nn.Conv2d(channels, channels, 1, bias=False), nn.BatchNorm2d(channels))
        self.itself = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        return (self.wide(x) + self.narrow(x) + self.itself(x)).relu()


class LowRankAdapter(nn.Module):
    """A linear layer with a LoRA adapter."""

    def __init__(self, width: int = 512, rank: int = 8) -> None:
        super().__init__()
        self.base = nn.Linear(width, width)
        self.a, self.b = nn.Linear(width, rank, False), nn.Linear(rank, width, False)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + 2.0 * self.b(self.a(x))


class Recurrent(nn.Module):
    """An LSTM cell, unrolled over a few steps."""

    def __init__(self, width: int = 128, steps: int = 4) -> None:
        super().__init__()
        self.cell, self.steps = nn.LSTMCell(width, width), steps

    def forward(self, x: Tensor) -> Tensor:
        state = (torch.zeros_like(x[:, 0]), torch.zeros_like(x[:, 0]))
        for i in range(self.steps):
            state = self.cell(x[:, i], state)
        return state[0]


MOTIVATING: dict[str, Callable[[], Made]] = {
    "chain": lambda: (Chain(), (torch.randn(512, 64), torch.randn(64, 64))),
    "low-rank": lambda: (LowRank(), (torch.randn(1024, 64),)),
    "row-sum": lambda: (RowSum(), (torch.randn(512, 768),)),
    "towers": lambda: (Towers(), (torch.randn(256, 512),)),
    "permuted": lambda: (PermutedNorm(), (torch.randn(8, 128, 256),)),
}

BLOCKS: dict[str, Callable[[], Made]] = {
    "attention": lambda: (Attention(), (torch.randn(2, 64, 256),)),
    "attention-written": lambda: (Attention(whole=False), (torch.randn(2, 64, 256),)),
    "transformer-block": lambda: (TransformerBlock(), (torch.randn(2, 64, 256),)),
    "gated-mlp": lambda: (GatedMlp(), (torch.randn(2, 64, 256),)),
    "mixer": lambda: (Mixer(), (torch.randn(4, 64, 128),)),
    "residual-block": lambda: (ResidualBlock(), (torch.randn(2, 32, 28, 28),)),
    "repvgg": lambda: (RepVgg(), (torch.randn(2, 32, 28, 28),)),
    "lora": lambda: (LowRankAdapter(), (torch.randn(128, 512),)),
    "lstm-4": lambda: (Recurrent(), (torch.randn(16, 4, 128),)),
}


def _text(model: str, config: str, **sizes: Any) -> Callable[[], Made]:
    """A model of Hugging Face transformers on 64 tokens."""
    return lambda: (_huggingface(model, config, sizes, "input_ids"), (torch.randint(0, 100, (1, 64)),))


def _image(model: str, config: str, **sizes: Any) -> Callable[[], Made]:
    """A model of Hugging Face transformers on an image of 64 x 64 pixels."""
    return lambda: (_huggingface(model, config, sizes, "pixel_values"), (torch.randn(1, 3, 64, 64),))


def _huggingface(model: str, config: str, sizes: Mapping[str, Any], taken: str) -> nn.Module:
    library = import_module("transformers")
    return Only(getattr(library, model)(getattr(library, config)(**sizes)), taken)


class Only(nn.Module):
    """A model of transformers that takes one tensor, by its name, and returns its first one."""

    def __init__(self, model: nn.Module, taken: str) -> None:
        super().__init__()
        self.model, self.taken = model, taken

    def forward(self, x: Tensor) -> Tensor:
        return self.model(**{self.taken: x}, return_dict=False)[0]


def _torchvision(name: str) -> Callable[[], Made]:
    """A model of images, on one of 64 x 64 pixels."""
    return lambda: (getattr(import_module("torchvision.models"), name)(), (torch.randn(1, 3, 64, 64),))


_BERT = {
    "hidden_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
    "vocab_size": 1000,
}
_LLAMA = {**_BERT, "num_key_value_heads": 2, "intermediate_size": 688, "use_cache": False}
_GPT2 = {"vocab_size": 1000, "n_embd": 256, "n_layer": 2, "n_head": 4, "use_cache": False}
_DISTILBERT = {"vocab_size": 1000, "dim": 256, "n_layers": 2, "n_heads": 4, "hidden_dim": 1024}
_T5 = {"vocab_size": 1000, "d_model": 256, "d_kv": 64, "d_ff": 1024, "num_layers": 2, "num_heads": 4}
_VIT = {**_BERT, "image_size": 64, "patch_size": 8}
_RESNET = {"embedding_size": 32, "hidden_sizes": [32, 64, 128, 256], "depths": [1, 1, 1, 1], "layer_type": "basic"}
_CONVNEXT = {"hidden_sizes": [32, 64, 128, 256], "depths": [1, 1, 2, 1]}
_SWIN = {"image_size": 64, "embed_dim": 48, "depths": [1, 1], "num_heads": [3, 6], "window_size": 4}
_REGNET = {"embedding_size": 32, "hidden_sizes": [32, 64, 128, 256], "depths": [1, 1, 2, 1], "groups_width": 16}

LIBRARIES: dict[str, tuple[str, Callable[[], Made]]] = {
    "hf-bert": ("transformers", _text("BertModel", "BertConfig", **_BERT)),
    "hf-distilbert": ("transformers", _text("DistilBertModel", "DistilBertConfig", **_DISTILBERT)),
    "hf-gpt2": ("transformers", _text("GPT2Model", "GPT2Config", **_GPT2)),
    "hf-llama": ("transformers", _text("LlamaModel", "LlamaConfig", **_LLAMA)),
    "hf-qwen2": ("transformers", _text("Qwen2Model", "Qwen2Config", **_LLAMA)),
    "hf-t5-encoder": ("transformers", _text("T5EncoderModel", "T5Config", **_T5)),
    "hf-vit": ("transformers", _image("ViTModel", "ViTConfig", **_VIT)),
    "hf-swin": ("transformers", _image("SwinModel", "SwinConfig", **_SWIN)),
    "hf-convnext": ("transformers", _image("ConvNextModel", "ConvNextConfig", **_CONVNEXT)),
    "hf-resnet": ("transformers", _image("ResNetModel", "ResNetConfig", **_RESNET)),
    "hf-regnet": ("transformers", _image("RegNetModel", "RegNetConfig", **_REGNET)),
    "hf-mobilenet-v2": ("transformers", _image("MobileNetV2Model", "MobileNetV2Config", depth_multiplier=0.35)),
    "tv-resnet18": ("torchvision", _torchvision("resnet18")),
    "tv-mobilenet-v3": ("torchvision", _torchvision("mobilenet_v3_small")),
    "tv-squeezenet": ("torchvision", _torchvision("squeezenet1_1")),
}


def trained(module: nn.Module) -> nn.Module:
    """The module in evaluation mode, with statistics and scales of its batch norms as training leaves them: not all 0
    or 1."""
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            for parameter in (part.weight, part.bias, part.running_mean, part.running_var):
                if parameter is not None:
                    parameter.data.uniform_(0.5, 1.5)
    return module.eval()


def modules() -> Iterator[tuple[str, Callable[[], Made]]]:
    """Every module by name: what the installed libraries have, and those that need none."""
    yield from MOTIVATING.items()
    yield from BLOCKS.items()
    yield from ((name, make) for name, (library, make) in LIBRARIES.items() if find_spec(library) is not None)
