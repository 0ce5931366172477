"""Writes the typed methods of the client from the OpenRPC document of the server:

    nexus3 schema | python generate.py nexus3

The argument is the directory of the package; `types.py`, `_methods.py` and `_methods_sync.py` in it are written anew. The
types of what a watch tells are those of docs/nexus3.schema.json, since OpenRPC has no notifications."""

from __future__ import annotations

import json
import keyword
import re
import sys
import textwrap
from pathlib import Path
from typing import Any, Dict, List, Tuple

HEADER = '"""{title}\n\nWritten by generate.py; change that instead."""\n\nfrom __future__ import annotations\n\n'
WIDTH = 112

# Optional parameters that may be given by their place: the first is what the method is about, the second is where the
# first Python client had it.
BY_PLACE = {"create_agent": "agent_id", "send": "request_id", "watch": "agents"}
# Said by the method's own name: `send` and `send_stream`.
STREAM = "stream"
# The kind of method whose notifications are what it is called for.
WATCH = "watch"

NOTIFICATIONS = Path(__file__).resolve().parents[2] / "docs" / "nexus3.schema.json"

Schema = Dict[str, Any]


def type_of(schema: Any) -> str:
    """The Python type of a schema, as an annotation."""
    if not isinstance(schema, dict):
        return "Any"
    if "$ref" in schema:
        return str(schema["$ref"].rsplit("/", 1)[1])
    if "const" in schema or "enum" in schema:
        values = schema.get("enum", [schema.get("const")])
        return f"Literal[{', '.join(json.dumps(value) for value in values)}]"
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return union([type_of(one) for one in schema[several]])
    kind = schema.get("type")
    if isinstance(kind, list):
        return union([type_of({**schema, "type": one}) for one in kind])
    if kind == "array":
        return f"List[{type_of(schema.get('items'))}]"
    if kind == "object":
        return f"Dict[str, {type_of(schema.get('additionalProperties'))}]"
    plain = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
    return plain.get(str(kind), "Any")


def union(types: List[str]) -> str:
    types = list(dict.fromkeys(types))
    rest = [one for one in types if one != "None"]
    if "Any" in rest:
        return "Any"
    if all(one.startswith("Literal[") for one in rest):
        rest = [f"Literal[{', '.join(one[len('Literal['):-1] for one in rest)}]"]
    inner = rest[0] if len(rest) == 1 else f"Union[{', '.join(rest)}]"
    return f"Optional[{inner}]" if "None" in types else inner


def one_line(schema: Any) -> str:
    return " ".join(schema.get("description", "").split()) if isinstance(schema, dict) else ""


def wrapped(text: str, indent: str, prefix: str = "") -> str:
    lines = textwrap.wrap(text, WIDTH - len(indent), break_on_hyphens=False, break_long_words=False)
    return "".join(f"{indent}{prefix}{line}\n" for line in lines)


def typed_dict(name: str, schema: Schema) -> str:
    members = schema.get("properties", {})
    if any(keyword.iskeyword(member) for member in members):
        # Such a name stands in no class. Nor do optional members beside it, of which there are none.
        pairs = ", ".join(f'"{member}": {type_of(members[member])}' for member in members)
        return f'{wrapped(one_line(schema), "", "# ")}{name} = TypedDict("{name}", {{{pairs}}})\n'
    required = [member for member in members if member in schema.get("required", [])]
    optional = [member for member in members if member not in required]
    doc = wrapped(f'"""{one_line(schema)}"""', "    ") if one_line(schema) else ""
    parts = []
    if required and optional:
        parts.append(f"class _{name}Required(TypedDict):\n{fields(members, required)}")
        parts.append(f"class {name}(_{name}Required, total=False):\n{doc}{fields(members, optional)}")
    else:
        total = "" if required else ", total=False"
        body = doc + fields(members, required or optional)
        parts.append(f"class {name}(TypedDict{total}):\n{body or '    pass' + chr(10)}")
    return "\n\n".join(parts)


def fields(members: Schema, names: List[str]) -> str:
    text = ""
    for name in names:
        text += wrapped(one_line(members[name]), "    ", "# ") + f"    {name}: {type_of(members[name])}\n"
    return text


def result_type(method: Schema) -> Tuple[str, Schema]:
    schema = method["result"]["schema"]
    if schema.get("type") == "object":
        return schema["title"], schema
    return type_of(schema), {}


def watch_types(known: Dict[str, Schema]) -> Dict[str, Schema]:
    """The notification `watch_event`, each of its events, and what they hold that has no type yet."""
    defs: Dict[str, Schema] = json.loads(NOTIFICATIONS.read_text(encoding="utf-8"))["$defs"]
    found: Dict[str, Schema] = {"WatchEvent": defs["watch_event"]["properties"]["params"]}
    events = []
    for branch in defs["WatchedEvent"]["oneOf"]:
        # An event that is a type of its own has that type's members beside its name.
        base = defs[branch["$ref"].rsplit("/", 1)[1]] if "$ref" in branch else {}
        event = {name: value for name, value in branch.items() if name != "$ref"}
        event["properties"] = {**branch["properties"], **base.get("properties", {})}
        event["required"] = [*branch["required"], *base.get("required", [])]
        name = "Watched" + "".join(word.capitalize() for word in branch["properties"]["type"]["const"].split("_"))
        found[name] = event
        events.append({"$ref": f"#/$defs/{name}"})
    found["WatchedEvent"] = {"oneOf": events, "description": defs["WatchedEvent"]["description"]}
    while True:
        named = set(re.findall(r'"#/\$defs/(\w+)"', json.dumps(found)))
        missing = sorted(named - set(found) - set(known))
        if not missing:
            return found
        found.update({name: defs[name] for name in missing})


def types_module(document: Schema) -> str:
    named: Dict[str, Schema] = dict(document["components"]["schemas"])
    named.update(watch_types(named))
    for method in document["methods"]:
        name, schema = result_type(method)
        if schema:
            named[name] = schema
    aliases, dicts = "", []
    # Aliases are evaluated where they stand, so in the order in which they need each other.
    for name in sorted(named):
        if named[name].get("type") == "object":
            dicts.append(typed_dict(name, named[name]))
    waiting = {name: schema for name, schema in named.items() if schema.get("type") != "object"}
    for name, schema in sorted(waiting.items(), key=lambda item: ("$ref" in json.dumps(item[1]), item[0])):
        line = f"{name} = {type_of(schema)}"
        if len(line) > WIDTH:
            line = line.replace("[", "[\n    ", 1).replace(", ", ",\n    ")[:-1] + ",\n]"
        aliases += f"\n{wrapped(one_line(schema), '', '# ')}{line}"
    imports = "from typing import Any, Dict, List, Literal, Optional, TypedDict, Union\n"
    head = HEADER.format(title="The types of parameters and results.")
    return head + imports + "\n\n" + "\n\n".join(dicts) + "\n" + aliases + "\n"


def python_name(method: str) -> str:
    return method.replace(".", "_")


def method_source(method: Schema, stream: bool) -> str:
    name, result = method["name"], result_type(method)[0]
    # The agent of an agent's method is part of its address.
    left_out = (STREAM, "agent_id") if method["x-scope"] == "agent" else (STREAM,)
    params = [param for param in method["params"] if param["name"] not in left_out]
    by_place = [param for param in params if param["required"]]
    by_place += [param for param in params if param["name"] == BY_PLACE.get(name)]
    by_name = [param for param in params if param not in by_place]
    given = [signature(param) for param in by_place] + (["*"] if by_name else []) + [signature(p) for p in by_name]
    passed = {param["name"]: param["name"] for param in params}
    doc = documentation(method, params, stream)
    python = python_name(name) + ("_stream" if stream else "")
    if method["x-kind"] == WATCH:
        body = call("return self._watch(", passed)
        returns, start = "Watch", "    def"
    elif stream:
        if "options" in passed:
            passed["options"] = '{**(options or {}), "stream": True}'
        else:
            passed[STREAM] = "True"
        body = call(f'return self._stream("{name}", ', passed)
        returns, start = f"Stream[{result}]", "    def"
    else:
        body = call(f'result: {result} = await self._call("{name}", ', passed) + "        return result\n"
        returns, start = result, "    async def"
    arguments = "".join(f", {one}" for one in given)
    head = f"{start} {python}(self{arguments}) -> {returns}:\n"
    if len(head) > WIDTH:
        head = f"{start} {python}(\n        self,\n" + "".join(f"        {one},\n" for one in given) + f"    ) -> {returns}:\n"
    return head + doc + body


def call(start: str, passed: Dict[str, str]) -> str:
    pairs = [f'"{name}": {value}' for name, value in passed.items()]
    line = f"        {start}{{{', '.join(pairs)}}})\n"
    if len(line) <= WIDTH:
        return line
    return f"        {start}{{\n" + "".join(f"            {pair},\n" for pair in pairs) + "        })\n"


def signature(param: Schema) -> str:
    kind = type_of(param["schema"])
    if param["required"]:
        return f"{param['name']}: {kind}"
    return f"{param['name']}: {kind if kind.startswith('Optional') or kind == 'Any' else f'Optional[{kind}]'} = None"


def documentation(method: Schema, params: List[Schema], stream: bool) -> str:
    text = f'"""{one_line(method)}'
    if stream:
        text = f'"""`{python_name(method["name"])}`, with its text and events as they are made.'
    described = [] if stream else [param for param in params if one_line(param["schema"])]
    if not described:
        return wrapped(text + '"""', "        ")
    lines = wrapped(text, "        ") + "\n"
    for param in described:
        lines += wrapped(f"{param['name']}: {one_line(param['schema'])}", "        ")
    return lines.rstrip("\n") + '"""\n'


def streams(method: Schema, document: Schema) -> bool:
    for param in method["params"]:
        if param["name"] == STREAM:
            return True
        options = type_of(param["schema"]).replace("Optional[", "").rstrip("]")
        if param["name"] == "options" and STREAM in document["components"]["schemas"][options]["properties"]:
            return True
    return False


def methods_module(document: Schema) -> str:
    classes = []
    for scope, name, doc in (
        ("server", "ServerMethods", "The methods of the server."),
        ("agent", "AgentMethods", "The methods of an agent."),
    ):
        found = [method for method in document["methods"] if method["x-scope"] == scope]
        source = f'class {name}:\n    """{doc}"""\n\n'
        source += "    async def _call(self, method: str, params: Dict[str, Any]) -> Any:\n        raise NotImplementedError\n\n"
        source += "    def _stream(self, method: str, params: Dict[str, Any]) -> Stream[Any]:\n        raise NotImplementedError\n"
        if any(method["x-kind"] == WATCH for method in found):
            source += "\n    def _watch(self, params: Dict[str, Any]) -> Watch:\n        raise NotImplementedError\n"
        for method in found:
            source += "\n" + method_source(method, stream=False)
            if streams(method, document):
                source += "\n" + method_source(method, stream=True)
        classes.append(source)
    body = "\n\n".join(classes)
    names = list(document["components"]["schemas"]) + [result_type(method)[0] for method in document["methods"]]
    used = sorted(set(re.findall(r"\w+", body)).intersection(names) - {"Any"})
    imports = "from typing import Any, Dict, List, Optional\n\nfrom ._stream import Stream, Watch\n"
    imports += "from .types import (\n" + "".join(f"    {name},\n" for name in used) + ")\n\n\n"
    return HEADER.format(title="The methods of the interface, each with its types.") + imports + body


def sync(source: str) -> str:
    """The same for threads that wait."""
    return source.replace("async def", "def").replace("await ", "").replace("from ._stream ", "from ._stream_sync ")


def generate(document: Schema) -> Dict[str, str]:
    """The files of the package, by name."""
    methods = methods_module(document)
    return {"types.py": types_module(document), "_methods.py": methods, "_methods_sync.py": sync(methods)}


if __name__ == "__main__":
    for file, text in generate(json.load(sys.stdin)).items():
        Path(sys.argv[1], file).write_text(text, encoding="utf-8")
