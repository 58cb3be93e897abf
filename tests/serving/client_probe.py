"""``python client_probe.py LIBRARY ADDRESS MODEL PROMPT STOP`` runs in an environment that has the
library, asks an endpoint through it, and prints what it returned, as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

NO_MODEL = "none"
LENGTH = 40  # tokens of an answer at most
Probe = tuple[Callable[..., str], list[str], str]
"""Answers to a model with options; pieces of a stream; a response."""


def probe_openai(url: str, model: str, prompt: str) -> Probe:
    from openai import OpenAI

    client = OpenAI(base_url=url, api_key="none", max_retries=0)
    ask = {"messages": [{"role": "user", "content": prompt}], "max_tokens": LENGTH}
    chat: Any = client.chat.completions.create
    return (
        lambda name, **more: chat(model=name, **ask, **more).choices[0].message.content,
        [piece.choices[0].delta.content or "" for piece in chat(model=model, **ask, stream=True)],
        client.responses.create(model=model, input=prompt, max_output_tokens=LENGTH).output_text,
    )


def probe_litellm(url: str, model: str, prompt: str) -> Probe:
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # fetches nothing
    import litellm

    def chat(name: str, **more: Any) -> Any:
        more |= {"messages": [{"role": "user", "content": prompt}], "num_retries": 0, **where}
        return litellm.completion(f"openai/{name}", max_tokens=LENGTH, **more)

    where = {"api_base": url, "api_key": "none"}
    ask = {"input": prompt, "max_output_tokens": LENGTH, **where}
    return (
        lambda name, **more: chat(name, **more).choices[0].message.content,
        [piece.choices[0].delta.content or "" for piece in chat(model, stream=True)],
        litellm.responses(model=f"openai/{model}", **ask).output[0].content[0].text,
    )


def probe_langchain(url: str, model: str, prompt: str) -> Probe:
    from langchain_openai import ChatOpenAI

    def made(name: str = model, **more: Any) -> Any:
        where = {"base_url": url, "api_key": "none", "max_retries": 0}
        return ChatOpenAI(model=name, max_tokens=LENGTH, **where, **more)

    return (
        lambda name, **more: made(name).invoke(prompt, **more).content,
        [chunk.content for chunk in made().stream(prompt)],
        made(use_responses_api=True).invoke(prompt).text,
    )


LIBRARIES: dict[str, Callable[[str, str, str], Probe]] = {
    "openai": probe_openai,
    "litellm": probe_litellm,
    "langchain-openai": probe_langchain,
}
"""By the names under which they are installed."""

if __name__ == "__main__":
    library, address, model, prompt, stop = sys.argv[1:]
    text, stream, response = LIBRARIES[library](f"{address}/v1", model, prompt)
    try:
        error = text(NO_MODEL)
    except Exception as raised:
        error = f"{type(raised).__name__}: {raised}"
    actual = {"chat": text(model), "stop": text(model, stop=[stop]), "error": error}
    print(json.dumps({**actual, "stream": stream, "response": response}))
