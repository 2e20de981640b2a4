# SPDX-License-Identifier: Apache-2.0
"""The part of JSON Schema that the schemas of this folder use; what it does not know is an error, so nothing goes unchecked."""
import re

TYPES = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}
KNOWN = {"$comment", "$ref", "definitions", "type", "enum", "required", "properties", "additionalProperties", "items", "pattern",
         "minLength", "minimum", "anyOf"}


def problems(value, schema, root=None, at="$"):
    """What is wrong with `value`, a list of sentences."""
    root = schema if root is None else root
    unknown = set(schema) - KNOWN
    if unknown:
        raise ValueError(f"{at}: the schema has {', '.join(sorted(unknown))}")
    if "$ref" in schema:
        return problems(value, root["definitions"][schema["$ref"].split("/")[-1]], root, at)
    if "anyOf" in schema:
        found = [problems(value, one, root, at) for one in schema["anyOf"]]
        return [] if any(not one for one in found) else [f"{at}: {value!r} fits none of {len(found)} forms"]
    if "enum" in schema:
        return [] if value in schema["enum"] else [f"{at}: {value!r} is none of {schema['enum']}"]
    expected = TYPES[schema["type"]]
    if not isinstance(value, expected) or (expected is int and isinstance(value, bool)):
        return [f"{at}: {value!r} is no {schema['type']}"]
    wrong = []
    if "pattern" in schema and not re.search(schema["pattern"], value):
        wrong.append(f"{at}: {value!r} does not match {schema['pattern']}")
    if len(value) < schema["minLength"] if "minLength" in schema else False:
        wrong.append(f"{at}: {value!r} is too short")
    if value < schema["minimum"] if "minimum" in schema else False:
        wrong.append(f"{at}: {value} is below {schema['minimum']}")
    wrong += [f"{at}: {name} is missing" for name in schema.get("required", []) if name not in value]
    if isinstance(value, dict):
        others = schema.get("additionalProperties", True)
        for name, one in value.items():
            part = schema.get("properties", {}).get(name, others)
            if part is False:
                wrong.append(f"{at}: {name} is unknown")
            elif part is not True:
                wrong += problems(one, part, root, f"{at}.{name}")
    if isinstance(value, list) and "items" in schema:
        for index, one in enumerate(value):
            wrong += problems(one, schema["items"], root, f"{at}[{index}]")
    return wrong
