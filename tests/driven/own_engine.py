"""An engine of one's own with its driver in one file: first come, first served, without a prefix cache."""

from collections import deque

VERSION = "1.0"
SUPPORTS = ("abort", "reset")


class Request:
    def __init__(self, name, prompt, max_tokens):
        self.name, self.tokens, self.num_prompt = name, list(prompt), len(prompt)
        self.longest, self.num_computed, self.blocks = len(prompt) + max_tokens, 0, []


class Scheduler:
    """Reserves all blocks of a request when it is admitted, so that nothing is ever preempted."""

    def __init__(self, num_blocks, block_size, max_running, budget):
        self.free, self.ref_counts, self.size = deque(range(num_blocks)), [0] * num_blocks, block_size
        self.waiting, self.running, self.max_running, self.budget = deque(), [], max_running, budget

    def schedule(self):
        batch, budget = [], self.budget
        while self.waiting and len(self.running) < self.max_running:
            needed = -(-self.waiting[0].longest // self.size)
            if needed > len(self.free):
                break
            self.running.append(request := self.waiting.popleft())
            self.take(request, needed)
        for request in self.running:
            number = min(len(request.tokens) - request.num_computed, budget)
            budget -= number
            if number:
                batch.append((request, number))
        return batch

    def take(self, request, number):
        request.blocks = [self.free.popleft() for _ in range(number)]
        for block in request.blocks:
            self.ref_counts[block] += 1

    def update(self, batch, sample):
        for request, number in batch:
            request.num_computed += number
            if request.num_computed == len(request.tokens):
                request.tokens.append(sample(request.name, len(request.tokens)))
            if len(request.tokens) == request.longest:
                self.running.remove(request)
                self.release(request)

    def release(self, request):
        for block in request.blocks:
            self.ref_counts[block] -= 1
            self.free.append(block)


class Core:
    def __init__(self, settings, token_at):
        (size, _window), *_ = settings["groups"]
        self.scheduler = Scheduler(
            settings["num_blocks"], size, settings["max_num_seqs"], settings["max_num_batched_tokens"]
        )
        self.requests, self.plan, self.token_at = {}, {}, token_at
        self.after_call = lambda call: None

    @property
    def is_idle(self):
        return not (self.scheduler.waiting or self.scheduler.running)

    def add(self, name, prompt, max_tokens, salt=None):
        self.requests[name] = Request(name, prompt, max_tokens)
        self.scheduler.waiting.append(self.requests[name])
        self.after_call("add")

    def step(self):
        if self.is_idle:
            return False
        batch = self.scheduler.schedule()
        self.plan = {request.name: (request.num_computed, number) for request, number in batch}
        self.after_call("schedule")
        self.scheduler.update(batch, self.token_at)
        self.after_call("update")
        return bool(batch)

    def abort(self, name):
        request = self.requests.get(name)
        for queue in (self.scheduler.waiting, self.scheduler.running):
            if request in queue:
                queue.remove(request)
                self.scheduler.release(request)
                self.after_call("abort")

    def reset(self):
        self.after_call("reset")

    def content_of(self, name):
        request = self.requests[name]
        return [None, *request.tokens[: request.num_prompt]]

    def state(self):
        waiting = [(one, "waiting") for one in self.scheduler.waiting]
        running = [(one, "running") for one in self.scheduler.running]
        return {
            "requests": {one.name: [status, [list(one.blocks)]] for one, status in (*waiting, *running)},
            "ref_counts": list(self.scheduler.ref_counts),
            "free_queue": list(self.scheduler.free),
            "cached": [],
            "null_block": None,
        }


CORE = Core
