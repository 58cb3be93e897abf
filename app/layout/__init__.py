"""The page in gradio's terms: components, wiring, look, serving."""

from app.layout.page import build
from app.layout.serve import serve

__all__ = ["build", "serve"]
