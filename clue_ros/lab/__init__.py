"""The laboratory: data, simulator, language, training and evaluation.

It makes and measures models. The runtime never imports it.
"""
