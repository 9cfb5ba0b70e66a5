"""What a decision's code must not contain, found in its syntax tree. Ruff bans the names; these rules see shapes."""

import ast
from collections.abc import Callable, Iterator

Finding = tuple[int, str]
"""The line, and the sentence that says what is wrong and what to do instead."""

Rule = Callable[[ast.Module], Iterator[Finding]]

_MUTABLE_DISPLAYS = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
_MUTABLE_CONSTRUCTORS = frozenset(
    {"bytearray", "Counter", "defaultdict", "deque", "dict", "list", "OrderedDict", "set"}
)
_CACHES = frozenset({"cache", "cached_property", "lru_cache"})
_SETS = frozenset({"set", "frozenset"})
_SET_METHODS = frozenset({"difference", "intersection", "symmetric_difference", "union"})
_ORDER_FREE = frozenset({"all", "any", "frozenset", "len", "max", "min", "set", "sorted"})
_FILE_BUILTINS = frozenset({"eval", "exec", "input", "open"})
_FILE_MODULES = frozenset({"glob", "io", "os", "pathlib", "shutil", "sys", "tempfile"})


def no_module_state(module: ast.Module) -> Iterator[Finding]:
    """Nothing at module level can change."""
    for node in module.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            names = [
                ast.unparse(target) for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            ]
            if "__all__" not in names and _is_mutable(node.value):
                yield node.lineno, f"{names[0]} is mutable module state: use a tuple, frozenset or MappingProxyType"
    for inner in ast.walk(module):
        if isinstance(inner, ast.Global):
            yield inner.lineno, "`global` is hidden state: keep it in an object that the caller holds"


def no_endless_caches(module: ast.Module) -> Iterator[Finding]:
    """No function remembers without a bound; `lru_cache` with a size is what is allowed (its result is a value)."""
    for function in functions(module):
        for decorator in function.decorator_list:
            if _name_of(decorator) in _CACHES and not _has_size(decorator):
                yield function.lineno, f"{function.name} has a cache that only grows: say lru_cache(maxsize=...)"


def no_clock_parameters(module: ast.Module) -> Iterator[Finding]:
    """`now` is a number; no function is handed a clock."""
    for function in functions(module):
        for parameter in parameters(function):
            annotation = ast.unparse(parameter.annotation) if parameter.annotation is not None else ""
            if parameter.arg == "clock" or "Clock" in annotation:
                yield parameter.lineno, f"{function.name} takes a clock: take `now: float` instead"
            if parameter.arg == "now" and annotation != "float":
                yield parameter.lineno, f"{function.name}: `now` is a float, seconds since the epoch"


def no_generators_made(module: ast.Module) -> Iterator[Finding]:
    """Randomness is handed in."""
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and _name_of(node) == "default_rng":
            yield node.lineno, "makes its own randomness: take a seeded numpy.random.Generator as a parameter"


def no_unseeded_generators(module: ast.Module) -> Iterator[Finding]:
    """Where generators are made, they are made from a seed."""
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and _name_of(node) == "default_rng" and not (node.args or node.keywords):
            yield node.lineno, "randomness without a seed: hand one in"


def no_set_order(module: ast.Module) -> Iterator[Finding]:
    """No loop runs in the order of a set."""
    order_free = {
        argument for node in ast.walk(module) if isinstance(node, ast.Call) and _name_of(node) in _ORDER_FREE
        for argument in node.args
    }  # fmt: skip
    for node in ast.walk(module):
        iterables: list[ast.expr] = []
        if isinstance(node, ast.For):
            iterables = [node.iter]
        elif isinstance(node, ast.ListComp | ast.DictComp | ast.GeneratorExp) and node not in order_free:
            iterables = [clause.iter for clause in node.generators]
        elif isinstance(node, ast.Call) and _name_of(node) in {"enumerate", "list", "next", "iter", "tuple", "zip"}:
            iterables = list(node.args)
        for iterable in iterables:
            if _is_set(iterable):
                yield iterable.lineno, "runs in the order of a set: use sorted(...), with a key that ends in an id"


def no_any(module: ast.Module) -> Iterator[Finding]:
    """Every value has a type."""
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom) and node.module == "typing":
            if any(alias.name == "Any" for alias in node.names):
                yield node.lineno, "Any: name the type (object, where nothing is known)"
        elif isinstance(node, ast.Attribute) and ast.unparse(node) in {"typing.Any", "t.Any"}:
            yield node.lineno, "Any: name the type (object, where nothing is known)"


def no_files(module: ast.Module) -> Iterator[Finding]:
    """Decisions read and write no files."""
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _FILE_BUILTINS:
            yield node.lineno, f"{node.func.id}() is I/O: take the value as a parameter"
        for name in imported(node):
            if name.partition(".")[0] in _FILE_MODULES:
                yield getattr(node, "lineno", 0), f"imports {name}, which is I/O: take the value as a parameter"


def frozen_slotted(module: ast.Module) -> Iterator[Finding]:
    """A value never changes and holds nothing but its fields."""
    for node in ast.walk(module):
        if not isinstance(node, ast.ClassDef):
            continue
        for decorator in node.decorator_list:
            if _name_of(decorator) != "dataclass":
                continue
            options = decorator.keywords if isinstance(decorator, ast.Call) else []
            chosen = {option.arg for option in options if ast.unparse(option.value) == "True"}
            if not {"frozen", "slots"} <= chosen:
                yield node.lineno, f"{node.name} is a value: @dataclass(frozen=True, slots=True)"


def functions(module: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function and method, nested ones too."""
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.arg]:
    """Every parameter, of whatever kind."""
    declared = function.args
    variadic = [parameter for parameter in (declared.vararg, declared.kwarg) if parameter is not None]
    return [*declared.posonlyargs, *declared.args, *declared.kwonlyargs, *variadic]


def _has_size(cache: ast.expr) -> bool:
    """Whether it is `lru_cache(maxsize=<a number>)`."""
    sizes = (
        [option.value for option in cache.keywords if option.arg == "maxsize"] if isinstance(cache, ast.Call) else []
    )
    return any(isinstance(size, ast.Constant) and isinstance(size.value, int) for size in sizes)


def _is_mutable(value: ast.expr) -> bool:
    return isinstance(value, _MUTABLE_DISPLAYS) or (
        isinstance(value, ast.Call) and _name_of(value) in _MUTABLE_CONSTRUCTORS
    )


def _is_set(value: ast.expr) -> bool:
    """Whether the expression is a set by its looks: a display, a constructor, an operation on views or sets."""
    if isinstance(value, ast.Set | ast.SetComp):
        return True
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.BitOr | ast.BitAnd | ast.Sub | ast.BitXor):
        return any(_is_set(side) or _is_view(side) for side in (value.left, value.right))
    if isinstance(value, ast.Call):
        is_method = isinstance(value.func, ast.Attribute)
        return _name_of(value) in (_SET_METHODS if is_method else _SETS)
    return False


def _is_view(value: ast.expr) -> bool:
    return (
        isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in {"keys", "items"}
    )


def _name_of(node: ast.expr) -> str:
    """The last part of what is called or named: `deque` of `collections.deque(maxlen=3)`."""
    if isinstance(node, ast.Call):
        return _name_of(node.func)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def imported(node: ast.AST) -> list[str]:
    """The modules that an import statement names; nothing for other nodes."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module] if isinstance(node, ast.ImportFrom) and node.module is not None else []
