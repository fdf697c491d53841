# ruff: noqa: E501  (a table: a line a row)
"""Records whose packing is hostile: bombs, what is cut or wrong, what is deep, keys given twice."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable

from nbcompile.record.compilation import SCHEMA

_HEAD = {"schema": SCHEMA, "id": "x", "title": "t"}
_GOOD = json.dumps({**_HEAD, "notes": ["fine"]}).encode()


def _file(deflate: object, **others: object) -> str:
    return json.dumps({**_HEAD, **others, "deflate": deflate})


def _zipped(data: bytes, level: int = 9) -> bytes:
    return zlib.compress(data, level)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def bomb(size: int, unit: bytes = b" ", head: bytes = b"", tail: bytes = b"") -> str:
    """A file that unfolds into ``size`` bytes and more, made without holding them."""
    packer = zlib.compressobj(9)
    block = unit * (1_000_000 // len(unit))
    parts = [packer.compress(head)]
    parts += [packer.compress(block) for _ in range(size // len(block))]
    parts += [packer.compress(tail), packer.flush()]
    return _file(_base64(b"".join(parts)))


def _twice() -> str:
    inner = _base64(_zipped(_file(_base64(_zipped(_GOOD))).encode()))
    return _file(inner)


def _in(value: str) -> str:
    return _file(_base64(_zipped(f'{{"schema":"{SCHEMA}","id":"x",{value}}}'.encode())))


PACKED: dict[str, Callable[[], str]] = {
    "bomb of spaces": lambda: bomb(600_000_000),
    "bomb of lists": lambda: bomb(400_000_000, b"[]," * 3, f'{{"schema":"{SCHEMA}","id":"x","notes":['.encode()),
    "bomb of a text": lambda: bomb(300_000_000, b"a", f'{{"schema":"{SCHEMA}","id":"x","backend":"'.encode(), b'"}'),
    "bomb in a bomb": _twice,
    "cut": lambda: _file(_base64(_zipped(_GOOD)[:-6])),
    "cut at once": lambda: _file(_base64(_zipped(_GOOD)[:1])),
    "empty": lambda: _file(""),
    "going on": lambda: _file(_base64(_zipped(_GOOD) + b"<script>")),
    "no base64": lambda: _file("<script>window.canary=1</script>"),
    "half base64": lambda: _file(_base64(_zipped(_GOOD))[:-1]),
    "a number": lambda: _file(7),
    "nothing": lambda: _file(None),
    "a list": lambda: _file([1]),
    "an object": lambda: _file({"__proto__": {"x": 1}}),
    "gzip": lambda: _file(_base64(b"\x1f\x8b\x08\x00" + _zipped(_GOOD))),
    "raw": lambda: _file(_base64(_zipped(_GOOD)[2:-4])),
    "wrong sum": lambda: _file(_base64(_zipped(_GOOD)[:-4] + b"\0\0\0\0")),
    "wants a dictionary": lambda: _file(_base64(bytes([0x78, 0xBB, 1, 2, 3, 4]) + _zipped(_GOOD)[2:])),
    "not JSON": lambda: _file(_base64(_zipped(b"<script>window.canary=1</script>"))),
    "not UTF-8": lambda: _file(_base64(_zipped(b'{"schema":"' + SCHEMA.encode() + b'","id":"\xff\xfe\xc0\x80"}'))),
    "another version": lambda: _file(_base64(_zipped(_GOOD)), schema="nbcompile.compilation/99"),
    "another version inside": lambda: _file(_base64(_zipped(_GOOD.replace(b"compilation/1", b"compilation/7")))),
    "a huge version": lambda: _file(_base64(_zipped(_GOOD)), schema="nbcompile.compilation/" + "9" * 400),
    "no version": lambda: _file(_base64(_zipped(_GOOD)), schema="nbcompile.compilation/"),
    "version of a script": lambda: _file(_base64(_zipped(_GOOD)), schema="nbcompile.compilation/<img src=x onerror=canary=1>"),
    "no schema": lambda: json.dumps({"id": "x", "deflate": _base64(_zipped(_GOOD))}),
    "a schema that is a list": lambda: json.dumps({"schema": [SCHEMA], "deflate": _base64(_zipped(_GOOD))}),
    "deep lists": lambda: _in('"options":{"a":' + "[" * 150 + "]" * 150 + "}"),
    "deeper lists": lambda: _in('"options":{"a":' + "[" * 5_000 + "]" * 5_000 + "}"),
    "deepest lists": lambda: _in('"options":{"a":' + "[" * 2_000_000 + "]" * 2_000_000 + "}"),
    "deep objects": lambda: _in('"options":' + '{"a":' * 500 + "1" + "}" * 500),
    "plain deep lists": lambda: f'{{"schema":"{SCHEMA}","id":"x","options":{{"a":{"[" * 700}{"]" * 700}}}}}',
    "plain deeper lists": lambda: f'{{"schema":"{SCHEMA}","id":"x","options":{{"a":{"[" * 9_000}{"]" * 9_000}}}}}',
    "plain deep objects": lambda: f'{{"schema":"{SCHEMA}","id":"x","options":{"{" + chr(34) + "a" + chr(34) + ":"}' * 1 + '{"a":' * 900 + "1" + "}" * 900 + "}}",
    "deep peers": lambda: _in('"peers":[{"id":"x",' * 900 + '"notes":[]' + "}]" * 900),
    "peers in peers": lambda: _in('"peers":[{"id":"y","peers":[{"id":"z","peers":[{"id":"w"}]}]}]'),
    "many peers": lambda: _in('"peers":[' + ",".join('{"id":"y"}' for _ in range(5_000)) + "]"),
    "keys twice": lambda: _in('"notes":["a"],"notes":["<script>canary=1</script>"],"id":"y"'),
    "the schema twice": lambda: _in('"schema":"nbcompile.compilation/9"'),
    "keys of prototypes": lambda: _in(
        '"__proto__":{"polluted":1,"toString":1},"constructor":{"prototype":{"polluted":1}},'
        '"options":{"__proto__":{"polluted":1},"constructor":1,"toString":"x","hasOwnProperty":null},'
        '"kernels":[{"id":"__proto__","name":"constructor","graph":"toString","loops":["__proto__"],'
        '"schedule":"__proto__","sources":{"__proto__":"int x;","constructor":"y"},'
        '"launches":[{"function":"f","grid":[1],"constants":{"__proto__":1,"constructor":2}}]}]'
    ),
    "a long number": lambda: _in('"compile_seconds":' + "9" * 100_000),
    "a longer whole number": lambda: _in('"guards":[],"environment":{"threads":' + "9" * 100_000 + "}"),
    "a fraction without end": lambda: _in('"compile_seconds":0.' + "3" * 1_000_000),
    "an exponent": lambda: _in('"compile_seconds":1e99999999999'),
    "a lone surrogate": lambda: _in('"notes":["\\ud800","\\udfff\\ud800"],"backend":"\\udc00"'),
    "a lone surrogate and depth": lambda: _in('"notes":["\\ud800"],"options":{"a":' + "[" * 800 + "]" * 800 + "}"),
    "a lone surrogate as a key": lambda: _in('"options":{"\\ud800":"\\ud800"},"kernels":[{"id":"k","name":"k",'
        '"graph":"g","loops":[],"schedule":"s","sources":{"\\ud800":"\\udfff"}}]'),
    "fields of other types": lambda: _in('"graphs":{"0":{}},"kernels":"none","options":[1,2]'),
    "null everywhere": lambda: _in('"graphs":null,"kernels":null,"options":null,"cell":null'),
    "a text that is no object": lambda: '"nbcompile.compilation/1"',
    "a number alone": lambda: "1e400",
    "an array of records": lambda: f'[{{"schema":"{SCHEMA}","id":"x"}}]',
    "nothing at all": lambda: "",
    "a mark of order": lambda: "\ufeff" + json.dumps({"schema": SCHEMA, "id": "x"}),
}  # fmt: skip
