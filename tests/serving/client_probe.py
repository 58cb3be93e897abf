"""One client library against an endpoint, as its own documentation uses it.

``python client_probe.py LIBRARY ADDRESS MODEL PROMPT STOP SEED`` runs in an environment that has
the library, which this project does not require. The last line printed is what the library
returned, as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NO_MODEL = "none"
LENGTH = 40  # tokens of an answer at most


@dataclass(frozen=True)
class Question:
    """Where the endpoint is, and what each library asks of it."""

    base_url: str
    model: str
    prompt: str
    stop: str
    seed: int

    @property
    def messages(self) -> list[dict[str, str]]:
        """The prompt as a conversation."""
        return [{"role": "user", "content": self.prompt}]


def error_of(call: Callable[[], object]) -> str:
    """The class and the message of the error that a call raises."""
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "none was raised"


def probe_openai(question: Question) -> dict[str, Any]:
    """OpenAI's own SDK."""
    from openai import OpenAI

    client = OpenAI(base_url=question.base_url, api_key="none", max_retries=0)

    def chat(model: str = question.model, **more: Any) -> Any:
        return client.chat.completions.create(
            model=model, messages=question.messages, max_tokens=LENGTH, **more
        )

    def text(**more: Any) -> str:
        return chat(**more).choices[0].message.content

    options = {"include_usage": True}
    *chunks, last = chat(stream=True, stream_options=options)
    events = client.responses.create(
        model=question.model, input=question.prompt, max_output_tokens=LENGTH, stream=True
    )
    response = client.responses.create(
        model=question.model, input=question.prompt, max_output_tokens=LENGTH
    )
    return {
        "chat": text(),
        "stream": [chunk.choices[0].delta.content or "" for chunk in chunks],
        "stop": text(stop=[question.stop]),
        "seed": [text(temperature=1, seed=question.seed) for _ in range(2)],
        "error": error_of(lambda: chat(NO_MODEL)),
        "figures": last.metrics["speculative_decoding"],
        "response": response.output_text,
        "events": [event.delta for event in events if event.type == "response.output_text.delta"],
    }


def probe_litellm(question: Question) -> dict[str, Any]:
    """litellm, which calls any provider in OpenAI's form."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # fetches nothing
    import litellm

    where = {"api_base": question.base_url, "api_key": "none", "num_retries": 0}

    def chat(model: str = question.model, **more: Any) -> Any:
        return litellm.completion(
            model=f"openai/{model}", messages=question.messages, max_tokens=LENGTH, **where, **more
        )

    def text(**more: Any) -> str:
        return chat(**more).choices[0].message.content

    response = litellm.responses(
        model=f"openai/{question.model}",
        input=question.prompt,
        max_output_tokens=LENGTH,
        api_base=question.base_url,
        api_key="none",
    )
    return {
        "chat": text(),
        "stream": [chunk.choices[0].delta.content or "" for chunk in chat(stream=True)],
        "stop": text(stop=[question.stop]),
        "seed": [text(temperature=1, seed=question.seed) for _ in range(2)],
        "error": error_of(lambda: chat(NO_MODEL)),
        "response": response.output[0].content[0].text,
    }


def probe_langchain(question: Question) -> dict[str, Any]:
    """The chat model of langchain-openai."""
    from langchain_openai import ChatOpenAI

    def model(name: str = question.model, **more: Any) -> Any:
        return ChatOpenAI(
            model=name,
            base_url=question.base_url,
            api_key="none",
            max_retries=0,
            max_tokens=LENGTH,
            **more,
        )

    drawn = model(temperature=1, seed=question.seed)
    response = model(use_responses_api=True).invoke(question.prompt)
    return {
        "chat": model().invoke(question.prompt).content,
        "stream": [chunk.content for chunk in model().stream(question.prompt)],
        "stop": model().invoke(question.prompt, stop=[question.stop]).content,
        "seed": [drawn.invoke(question.prompt).content for _ in range(2)],
        "error": error_of(lambda: model(NO_MODEL).invoke(question.prompt)),
        "response": response.text,
        "events": [chunk.text for chunk in model(use_responses_api=True).stream(question.prompt)],
    }


def probe_llm(question: Question) -> dict[str, Any]:
    """The command ``llm``; the pieces of a stream by its Python API."""
    folder = tempfile.mkdtemp()
    os.environ["LLM_USER_PATH"] = folder
    names = [question.model, NO_MODEL]
    models = [
        f"- model_id: here-{name}\n  model_name: {name}\n  api_base: {question.base_url}\n"
        for name in names
    ]
    Path(folder, "extra-openai-models.yaml").write_text("".join(models), encoding="utf-8")
    import llm

    def run(model: str = question.model, **options: object) -> subprocess.CompletedProcess[str]:
        options = {"max_tokens": LENGTH, **options}
        given = [word for name, value in options.items() for word in ("-o", name, str(value))]
        command = [str(Path(sys.executable).parent / "llm"), "prompt", "--no-log", "--no-stream"]
        whole = [*command, "-m", f"here-{model}", *given, question.prompt]
        return subprocess.run(whole, capture_output=True, text=True, encoding="utf-8")

    def text(**options: object) -> str:
        return run(**options).stdout.removesuffix("\n")

    stream = llm.get_model(f"here-{question.model}").prompt(question.prompt, max_tokens=LENGTH)
    failed = run(NO_MODEL)
    return {
        "chat": text(),
        "stream": list(stream),
        "stop": text(stop=question.stop),
        "seed": [text(temperature=1, seed=question.seed) for _ in range(2)],
        "error": f"exit code {failed.returncode}: {failed.stderr}",
    }


LIBRARIES: dict[str, Callable[[Question], dict[str, Any]]] = {
    "openai": probe_openai,
    "litellm": probe_litellm,
    "langchain-openai": probe_langchain,
    "llm": probe_llm,
}
"""By the names under which they are installed."""


def main() -> None:
    """Print what the library returned."""
    library, address, model, prompt, stop, seed = sys.argv[1:]
    question = Question(f"{address}/v1", model, prompt, stop, int(seed))
    print(json.dumps(LIBRARIES[library](question)))


if __name__ == "__main__":
    main()
