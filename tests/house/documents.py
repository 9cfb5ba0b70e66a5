"""What a document (Markdown, as text) says: the commands in its code blocks, and its links."""

import re

_FENCED = re.compile(r"^```[a-z]*\n(?P<body>.*?)^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!`)\[[^\]\n]+\]\((?P<target>[^)\s]+)\)")
_MAKE = re.compile(r"(?:^|&& )make +(?P<targets>(?:[a-z][a-z-]*(?: +|$))+)")
_TOPMAST = re.compile(r"(?:^|[&|] *)(?:\.venv/bin/)?topmast +(?P<words>[a-z][a-z-]*(?: +[a-z][a-z-]*)*)")


def command_lines(document: str) -> list[str]:
    """The lines of a document's code blocks, without prompts and trailing comments."""
    bodies = (match["body"] for match in _FENCED.finditer(document))
    return [line.removeprefix("$ ").partition(" #")[0].rstrip() for body in bodies for line in body.splitlines()]


def make_targets(document: str) -> set[str]:
    """The make targets that a document tells its reader to make."""
    matches = (match for line in command_lines(document) for match in _MAKE.finditer(line))
    return {target for match in matches for target in match["targets"].split()}


def topmast_commands(document: str) -> set[tuple[str, ...]]:
    """The words after `topmast` that look like commands, up to the first option or argument that does not."""
    matches = (match for line in command_lines(document) for match in _TOPMAST.finditer(line))
    return {tuple(match["words"].split()) for match in matches}


def relative_links(document: str) -> list[str]:
    """Links to files of this repository, without anchors."""
    prose = _FENCED.sub("", document)
    targets = (match["target"].partition("#")[0] for match in _LINK.finditer(prose))
    return [target for target in targets if target and "://" not in target and not target.startswith("mailto:")]
