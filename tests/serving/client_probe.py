"""One client library against an endpoint, as its own documentation uses it.

``python client_probe.py LIBRARY ADDRESS MODEL PROMPT STOP SEED`` runs in an environment that has
the library, which this project does not require. The last line printed is what the library
returned, as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

NO_MODEL = "none"
LENGTH = 40  # tokens of an answer at most


class Question(NamedTuple):
    """Where the endpoint is, and what each library asks of it."""

    base_url: str
    model: str
    prompt: str
    stop: str
    seed: int

    @property
    def messages(self) -> list[dict[str, str]]:
        return [{"role": "user", "content": self.prompt}]


def found(question: Question, text: Callable[..., str]) -> dict[str, Any]:
    """Return what ``text``, which takes a model and options, gives with and without them.

    ``error``: the class and the message of what it raises for a model that does not exist.
    """
    try:
        text(NO_MODEL)
        error = "none was raised"
    except Exception as raised:
        error = f"{type(raised).__name__}: {raised}"
    seeds = [text(question.model, temperature=1, seed=question.seed) for _ in range(2)]
    whole, stopped = text(question.model), text(question.model, stop=[question.stop])
    return {"chat": whole, "stop": stopped, "seed": seeds, "error": error}


def probe_openai(question: Question) -> dict[str, Any]:
    """OpenAI's own SDK."""
    from openai import OpenAI

    client = OpenAI(base_url=question.base_url, api_key="none", max_retries=0)

    def chat(model: str, **more: Any) -> Any:
        return client.chat.completions.create(
            model=model, messages=question.messages, max_tokens=LENGTH, **more
        )

    *chunks, last = chat(question.model, stream=True, stream_options={"include_usage": True})
    body = {"model": question.model, "input": question.prompt, "max_output_tokens": LENGTH}
    events = client.responses.create(**body, stream=True)
    return {
        **found(question, lambda *a, **more: chat(*a, **more).choices[0].message.content),
        "stream": [chunk.choices[0].delta.content or "" for chunk in chunks],
        "figures": last.metrics["speculative_decoding"],
        "response": client.responses.create(**body).output_text,
        "events": [event.delta for event in events if event.type == "response.output_text.delta"],
    }


def probe_litellm(question: Question) -> dict[str, Any]:
    """litellm, which calls any provider in OpenAI's form."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # fetches nothing
    import litellm

    where = {"api_base": question.base_url, "api_key": "none"}

    def chat(model: str, **more: Any) -> Any:
        more |= {"messages": question.messages, "max_tokens": LENGTH, "num_retries": 0}
        return litellm.completion(model=f"openai/{model}", **where, **more)

    body = {"model": f"openai/{question.model}", "input": question.prompt}
    response = litellm.responses(**body, max_output_tokens=LENGTH, **where)
    chunks = chat(question.model, stream=True)
    return {
        **found(question, lambda *a, **more: chat(*a, **more).choices[0].message.content),
        "stream": [chunk.choices[0].delta.content or "" for chunk in chunks],
        "response": response.output[0].content[0].text,
    }


def probe_langchain(question: Question) -> dict[str, Any]:
    """The chat model of langchain-openai."""
    from langchain_openai import ChatOpenAI

    def model(name: str = question.model, **more: Any) -> Any:
        where = {"base_url": question.base_url, "api_key": "none", "max_retries": 0}
        return ChatOpenAI(model=name, max_tokens=LENGTH, **where, **more)

    def text(name: str, stop: list[str] | None = None, **more: Any) -> str:
        return model(name, **more).invoke(question.prompt, stop=stop).content

    responses = model(use_responses_api=True)
    return {
        **found(question, text),
        "stream": [chunk.content for chunk in model().stream(question.prompt)],
        "response": responses.invoke(question.prompt).text,
        "events": [chunk.text for chunk in responses.stream(question.prompt)],
    }


LIBRARIES: dict[str, Callable[[Question], dict[str, Any]]] = {
    "openai": probe_openai,
    "litellm": probe_litellm,
    "langchain-openai": probe_langchain,
}
"""By the names under which they are installed."""

if __name__ == "__main__":
    library, address, *words, seed = sys.argv[1:]
    print(json.dumps(LIBRARIES[library](Question(f"{address}/v1", *words, int(seed)))))
