"""Write the JSON schemas that the explorer's TypeScript types are generated from.

    python scripts/schemas.py OUTDIR

writes ``record.schema.json``, that of the record, and ``scene.schema.json``, that of what Python adds to it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from nbcompile.record.compilation import json_schema
from nbcompile.view import scene_schema


def write(folder: Path) -> list[Path]:
    """The files, each written if it has changed."""
    schemas = {"record": json_schema(), "scene": scene_schema()}
    folder.mkdir(parents=True, exist_ok=True)
    out = []
    for name, schema in schemas.items():
        path = folder / f"{name}.schema.json"
        text = json.dumps(schema, indent=1, ensure_ascii=False) + "\n"
        # A file that stays as it was keeps its time: nothing is built from it anew.
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
        out.append(path)
    return out


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    for path in write(Path(sys.argv[1])):
        print(path)
