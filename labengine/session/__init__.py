"""The parts of a Lab, by composition. Imports go downwards only, and nothing here imports labengine.lab.

compare/       two sides in lockstep: Comparison
saved/         files, frames, scripts; an opened file: Trace
looking, view_source, named_views, xray     what views read, and the widgets of one recording
history/history                                     fork and rewind
session        the engine and the parts beside it:
inspection, outputs, requests, runs, stats      each knows the stepper, and parts to its right at most
history/breakpoints, inputs, crash              listeners, which know the hooks
stepper, background, fair_lock                  one lock, at most one open step, the background thread
settings, reasons, source_text, carried_text        the keywords of Lab; the method behind each event; source
"""

from labengine.system.code_roles import Role, plays

plays(__name__, Role.SESSION)
