"""Gives turns and tools the form that the chat template of gpt-oss takes.

The template shows one instruction, in front, and one call per turn of the assistant. The result of
a call gets the name of the call before it. The reasoning of a turn with a call is in `thinking`,
and that of other turns is not shown. The template leaves out further instructions and calls, and
refuses a turn with both content and thinking.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pagewire_frontend.chat.turns import Turn, text_turn
from pagewire_frontend.models.content import text_of


def harmony_turns(turns: Sequence[Mapping[str, Any]]) -> list[Turn]:
    """Return the turns of a conversation.

    All instructions become one, and turns of the assistant in a row become one. Calls of one turn
    become turns of their own, each with its result behind it. Reasoning is kept where the answer to
    the calls is still to come.
    """
    instructions = [text_of(turn["content"]) for turn in turns if turn["role"] == "system"]
    others = _joined([turn for turn in turns if turn["role"] != "system"])
    first = [text_turn("system", "\n\n".join(instructions))] if instructions else []
    finals = [index for index, turn in enumerate(others) if _is_final(turn)]
    last_final = finals[-1] if finals else -1
    said: list[Turn] = []
    results: list[Mapping[str, Any]] = []
    # Backwards, because results come behind their calls.
    for index in range(len(others) - 1, -1, -1):
        turn = others[index]
        if turn["role"] == "tool":
            results.append(turn)
            continue
        behind, results = results[::-1], []
        if turn.get("tool_calls"):
            said += reversed(_call_turns(turn, behind, is_open=index > last_final))
            continue
        said += map(dict, reversed(behind))
        # A turn of nothing but reasoning was cut off.
        if turn["content"] or not turn.get("reasoning_content"):
            said.append({key: turn[key] for key in turn if key != "reasoning_content"})
    return [*first, *map(dict, reversed(results)), *reversed(said)]


def harmony_tools(tools: Sequence[Mapping[str, Any]] | None) -> list[dict[str, Any]] | None:
    """Return tools in OpenAI's form; each of them and each argument has a description."""
    if tools is None:
        return None
    return [{**tool, "function": _described(tool["function"])} for tool in tools]


def _joined(turns: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the turns, those of the assistant up to a final text or a call as one."""
    joined: list[Mapping[str, Any]] = []
    texts: list[Mapping[str, Any]] = []
    for turn in turns:
        if turn["role"] == "assistant":
            texts.append(turn)
            if not turn.get("tool_calls"):
                continue
            turn = _one_turn(texts)
        elif texts:
            joined.append(_one_turn(texts))
        texts = []
        joined.append(turn)
    return [*joined, _one_turn(texts)] if texts else joined


def _one_turn(turns: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return turns in a row as one. Before a call, all texts are thoughts to the template."""
    *before, last = turns
    if not before:
        return last
    if not last.get("tool_calls"):
        contents = [text_of(turn["content"]) for turn in turns]
        return {**last, "content": "\n\n".join(filter(None, contents))}
    texts = [text for turn in before for text in (_thought(turn), text_of(turn["content"]))]
    return {**last, "reasoning_content": "\n\n".join(filter(None, [*texts, _thought(last)]))}


def _thought(turn: Mapping[str, Any]) -> str:
    return str(turn.get("reasoning_content") or "")


def _is_final(turn: Mapping[str, Any]) -> bool:
    return turn["role"] == "assistant" and not turn.get("tool_calls")


def _call_turns(
    turn: Mapping[str, Any], results: Sequence[Mapping[str, Any]], *, is_open: bool
) -> list[Turn]:
    """Return a turn per call, and the results; the text of the turn is in the first."""
    by_call: dict[str | None, list[Turn]] = {}
    for result in results:
        by_call.setdefault(result.get("tool_call_id"), []).append(dict(result))
    said: list[Turn] = []
    for call in turn["tool_calls"]:
        said.append({"role": "assistant", "content": "", "tool_calls": [call]})
        said += by_call.pop(call["id"], [])
    content, thought = text_of(turn["content"]), _thought(turn)
    if is_open and thought:
        # The template refuses a turn with both, and shows either as analysis.
        said[0]["thinking"] = f"{thought}\n\n{content}" if content else thought
    else:
        said[0]["content"] = content
    return said + [result for found in by_call.values() for result in found]


def _described(function: Mapping[str, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {"description": "", **function}
    parameters = described.get("parameters") or {}
    properties = parameters.get("properties")
    if isinstance(properties, Mapping):
        named = {
            name: {"description": "", **(spec if isinstance(spec, Mapping) else {})}
            for name, spec in properties.items()
        }
        described["parameters"] = {**parameters, "properties": named}
    return described
