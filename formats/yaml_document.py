"""YAML, read without surprises: duplicate keys, aliases and keys that are not text are refused with their line."""

from __future__ import annotations

import re
from collections.abc import Collection

import yaml

from formats.plain_yaml import plain_documents
from formats.problems import FieldProblem, FormatError, in_quotes

try:  # libyaml's loader is about ten times as fast; PyYAML may have been built without it.
    from yaml import CSafeLoader as _Loader
except ImportError:
    from yaml import SafeLoader as _Loader  # type: ignore[assignment]  # the same interface, in Python

DEEPEST_NESTING = 64

_KEY_TAGS = frozenset({"tag:yaml.org,2002:str"})
_WHOLE_NUMBER = "tag:yaml.org,2002:int"
_is_plain_number = re.compile(r"0|-?[1-9][0-9]*", re.ASCII).fullmatch
_UNICODE_LINE_BREAKS = frozenset("\x85\u2028\u2029")


def load_documents(
    text: str, source: str, *, whole_number_keys: bool = False, numbered_fields: Collection[str] = ()
) -> list[object]:
    """All documents of a YAML text (one, unless it has `---` lines); raises FormatError.

    With `whole_number_keys` a key may be a whole number too; else only those of the mappings under `numbered_fields`.
    """
    plain = plain_documents(text, _Loader, DEEPEST_NESTING)
    if plain is not None:
        return plain
    return documents_by_nodes(text, source, whole_number_keys=whole_number_keys, numbered_fields=numbered_fields)


def documents_by_nodes(
    text: str, source: str, *, whole_number_keys: bool = False, numbered_fields: Collection[str] = ()
) -> list[object]:
    """The same by way of a tree of nodes, which takes some kilobytes a line, and says what is wrong and where."""
    key_tags = _KEY_TAGS | {_WHOLE_NUMBER} if whole_number_keys else _KEY_TAGS
    documents: list[object] = []
    try:
        _refuse_deep_nesting(text, source)
        loader = _Loader(text)
        try:
            while loader.check_node():
                node = loader.get_node()
                if node is None:
                    break
                _check_node(node, source, key_tags, numbered_fields, seen=set())
                documents.append(loader.construct_document(node))
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        raise FormatError(source, [FieldProblem(_where(error.problem_mark), _syntax_problem(error))]) from error
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # ValueError: PyYAML meets a date such as 2026-99-99 or a number too long for Python.
        raise FormatError(source, [FieldProblem("", f"is not valid YAML: {error}")]) from error
    return documents


def load_document(text: str, source: str, *, numbered_fields: Collection[str] = ()) -> object:
    """The only document of a YAML text; raises FormatError when there is none or more than one. See `load_documents`."""
    documents = load_documents(text, source, numbered_fields=numbered_fields)
    if len(documents) != 1:
        found = "is empty" if not documents else f"has {len(documents)} documents separated by '---'"
        raise FormatError(source, [FieldProblem("", f"{found}; exactly one is expected")])
    return documents[0]


def dump_document(document: object) -> str:
    """The document as YAML in block style, keys in the given order."""
    text = yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120, default_flow_style=None)
    return str(text)


class _Dumper(yaml.SafeDumper):
    """Writes line breaks of Unicode as escapes: plain or in single quotes they would be read as spaces."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = '"' if _UNICODE_LINE_BREAKS.intersection(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def _refuse_deep_nesting(text: str, source: str) -> None:
    """Before any tree is built: building it takes one stack frame per level."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEEPEST_NESTING:
                where = _where(event.start_mark)
                raise FormatError(source, [FieldProblem(where, f"is nested deeper than {DEEPEST_NESTING} levels")])
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _check_node(
    node: yaml.Node, source: str, key_tags: frozenset[str], numbered_fields: Collection[str], seen: set[int]
) -> None:
    """Refuses what PyYAML lets pass: a key twice (the last would win), a node twice (an alias), odd keys."""
    if id(node) in seen:
        problem = FieldProblem(_where(node.start_mark), "is used again by an alias (*name); write it out instead")
        raise FormatError(source, [problem])
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _check_node(item, source, key_tags, numbered_fields, seen)
    elif isinstance(node, yaml.MappingNode):
        keys: set[str] = set()
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag not in key_tags:
                shown = in_quotes(key.value) if isinstance(key, yaml.ScalarNode) else "a list or mapping"
                remedy = "a whole number, such as 2" if _WHOLE_NUMBER in key_tags else "text; put it in quotes"
                raise FormatError(source, [FieldProblem(_where(key.start_mark), f"the key {shown} must be {remedy}")])
            if key.tag == _WHOLE_NUMBER and not _is_plain_number(key.value):
                # 2, 0x2 and +2 are the same number, and the last of them would win.
                shown = f"the key {in_quotes(key.value)} must be a plain whole number, such as 2"
                raise FormatError(source, [FieldProblem(_where(key.start_mark), shown)])
            if key.value in keys:
                raise FormatError(
                    source, [FieldProblem(_where(key.start_mark), f"the key {in_quotes(key.value)} is there twice")]
                )
            keys.add(key.value)
            tags_within = key_tags | {_WHOLE_NUMBER} if key.value in numbered_fields else key_tags
            _check_node(value, source, tags_within, numbered_fields, seen)


def _where(mark: object) -> str:
    """The place of a mark, which is one class in libyaml and another in PyYAML, or None."""
    line, column = getattr(mark, "line", None), getattr(mark, "column", None)
    return f"line {line + 1}, column {column + 1}" if isinstance(line, int) and isinstance(column, int) else ""


def _syntax_problem(error: yaml.MarkedYAMLError) -> str:
    context = f" {error.context}" if error.context else ""
    return f"is not valid YAML: {error.problem or 'syntax error'}{context}; look for indentation, quotes and brackets"
