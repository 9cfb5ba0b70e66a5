"""In which line of a YAML text a field stands."""

from __future__ import annotations

import re

import yaml

_STEP = re.compile(r"\[(\d+)\]|([^.\[\]]+)")


def line_of(text: str, document: int, path: str) -> int | None:
    """The line, from 1, of `path` (such as `jobs[0].resources.cpus`) in the document of this number, from 0.

    Where the field is missing it is the line of what it is missing in. None where the text has no such document.
    """
    try:
        root = next(
            (node for number, node in enumerate(yaml.compose_all(text, yaml.SafeLoader)) if number == document), None
        )
    except yaml.YAMLError:
        return None
    if root is None:
        return None
    node, mark = root, root.start_mark
    steps = [(match.start(), match.group(1), match.group(2)) for match in _STEP.finditer(path)]
    for start, index, key in steps:
        if index is not None and isinstance(node, yaml.SequenceNode) and int(index) < len(node.value):
            node = node.value[int(index)]
            mark = node.start_mark
        elif key is not None and isinstance(node, yaml.MappingNode):
            # The key of a label may have dots of its own.
            found = next(((known, value) for known, value in node.value if known.value in (key, path[start:])), None)
            if found is None:
                break
            known, node = found
            mark = known.start_mark
        else:
            break
    return int(mark.line) + 1
