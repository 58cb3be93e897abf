"""Components that Gradio does not have, subclasses of ``gr.HTML`` drawn by ``assets/web/``."""
