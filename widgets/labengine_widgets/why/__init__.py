"""Answers to "Why?" from the event stream alone, each a chain of events with links to their moments."""

from labengine_widgets.why.answer import Link, Why, WhyError
from labengine_widgets.why.questions import EngineIds, answer, answers_along, carried_answers, why

__all__ = ["EngineIds", "Link", "Why", "WhyError", "answer", "answers_along", "carried_answers", "why"]
