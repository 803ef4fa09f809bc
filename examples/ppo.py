"""Proximal policy optimization (Schulman et al., 2017) on Gymnasium's CartPole.

    pip install gymnasium
    python examples/ppo.py --steps 100000

Three programs do all the arithmetic: one gives the actions of all environments, with their log
probabilities and values; one computes advantages, by a loop that runs backwards in time; and one is
a step of training on a part of what was seen. A row of the first has the same bits for any number
of environments.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from itertools import pairwise

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import graphc
from graphc import nn, optim

DISCOUNT, DECAY, CLIP, ENTROPY, VALUE = 0.98, 0.8, 0.2, 0.0, 0.5
"""Of rewards; of advantages over time (lambda); of ratios; and weights of parts of the loss."""
HORIZON, EPOCHS, PART = 32, 10, 64
"""Steps of an environment between updates; passes over them; samples of a training step."""


def network(sizes: Sequence[int], last: float) -> nn.Sequential:
    """Dense layers with tanh between them; the last one's weights are small."""
    layers: list[nn.Module] = []
    for wide, narrow in pairwise(sizes):
        layers += [nn.Linear(wide, narrow), nn.Tanh()]
    layers[-2].weight.assign(layers[-2].weight.numpy() * np.float32(last))
    return nn.Sequential(*layers[:-1])


class Agent(nn.Module):
    """A policy and a value function of observations f32[n, features]."""

    def __init__(self, features: int, actions: int, hidden: int = 64) -> None:
        self.policy = network((features, hidden, hidden, actions), 0.01)
        self.value = network((features, hidden, hidden, 1), 1.0)

    def act(self, seen):
        """Drawn actions i32[n], their log probabilities f32[n], and values f32[n]."""
        scores = self.policy(seen)
        noise = -graphc.log(-graphc.log(graphc.rand_like(scores) + 1e-9) + 1e-9)
        actions = graphc.astype(graphc.argmax(scores + noise, axis=-1), "int32")
        return actions, chosen(graphc.log_softmax(scores, -1), actions), self.value(seen)[:, 0]


def chosen(log_probabilities, actions):
    """The log probabilities f32[n] of actions i32[n], from those f32[n, actions] of all."""
    return graphc.take_along_axis(log_probabilities, graphc.expand_dims(actions, 1), 1)[:, 0]


def advantages(rewards, ends, values, last):
    """Generalized advantages f32[t, n] (Schulman et al., 2016) and targets of values f32[t, n].

    They are computed from rewards and values f32[t, n], whether an episode ended with a step, and
    the values f32[n] of what is seen behind the last one.
    """
    goes_on = 1.0 - graphc.astype(ends, "float32")

    def step(carry, element):
        later, following = carry
        reward, on, value = element
        error = reward + DISCOUNT * following * on - value
        advantage = error + DISCOUNT * DECAY * on * later
        return (advantage, value), advantage

    begin = graphc.zeros_like(last), last
    _, found = graphc.scan(step, begin, (rewards, goes_on, values), reverse=True)
    return found, found + values


def loss_fn(agent, seen, actions, before, advantage, target):
    """The clipped loss of the policy, of the values, and of entropy."""
    logs = graphc.log_softmax(agent.policy(seen), -1)
    ratio = graphc.exp(chosen(logs, actions) - before)
    advantage = (advantage - graphc.mean(advantage)) / (graphc.std(advantage) + 1e-8)
    gain = graphc.minimum(ratio * advantage, graphc.clip(ratio, 1 - CLIP, 1 + CLIP) * advantage)
    entropy = -graphc.sum(graphc.exp(logs) * logs, -1)
    error = graphc.square(agent.value(seen)[:, 0] - target)
    return graphc.mean(VALUE * error - gain - ENTROPY * entropy)


def train(name: str, steps: int, environments: int, seed: int, rate: float = 1e-3):
    """Train an agent; yields (steps so far, mean return of the last 20 episodes) and the agent."""
    graphc.seed(seed)
    draws = np.random.default_rng(seed)
    makers = [lambda: gymnasium.make(name)] * environments
    world = SyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP)
    seen, _ = world.reset(seed=seed)
    seen = np.asarray(seen, np.float32)
    agent = Agent(seen.shape[1], int(world.single_action_space.n))

    shape, size = (HORIZON, environments), HORIZON * environments
    updates = max(1, steps // size)
    calls = updates * EPOCHS * -(-size // PART)
    adam = optim.Adam(lambda done: rate * (1 - done / calls), clip_grad_norm=0.5)
    act = graphc.compile(agent.act, seen, threads=1)
    measure = graphc.compile(
        advantages,
        *(graphc.spec(shape, kind) for kind in ("float32", "bool", "float32")),
        graphc.spec(shape[1:]),
        threads=1,
    )
    part = min(PART, size)
    floats = [graphc.spec(part)] * 3
    learn = graphc.compile(
        loss_fn,
        agent,
        graphc.spec((part, seen.shape[1])),
        graphc.spec(part, "int32"),
        *floats,
        update=adam,
        threads=1,
    )

    all_seen = np.empty((*shape, seen.shape[1]), np.float32)
    actions, ends = np.empty(shape, np.int32), np.empty(shape, bool)
    logs, values, rewards = (np.empty(shape, np.float32) for _ in range(3))
    returns, running = [0.0], np.zeros(environments)
    for update in range(updates):
        for t in range(HORIZON):
            all_seen[t] = seen
            actions[t], logs[t], values[t] = act(seen)
            seen, rewards[t], done, cut, _ = world.step(actions[t])
            seen = np.asarray(seen, np.float32)
            ends[t] = done | cut
            running += rewards[t]
            if ends[t].any():
                returns += [*running[ends[t]]]
                running[ends[t]] = 0
        *_, last = act(seen)
        gains, targets = measure(rewards, ends, values, last)
        flat = [a.reshape(size, *a.shape[2:]) for a in (all_seen, actions, logs, gains, targets)]
        for _ in range(EPOCHS):
            order = draws.permutation(size)
            for first in range(0, size - part + 1, part):
                rows = order[first : first + part]
                learn(*(a[rows] for a in flat))
        yield (update + 1) * size, float(np.mean(returns[-20:])), agent
    world.close()


def main(arguments: Sequence[str] | None = None) -> float:
    """Train, and print the return from time to time; the mean of the last 20 episodes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--environments", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    begin, shown, mean = time.perf_counter(), 0, 0.0
    for done, mean, _ in train(options.env, options.steps, options.environments, options.seed):
        if done * 10 // options.steps > shown:
            shown = done * 10 // options.steps
            rate = done / (time.perf_counter() - begin)
            print(f"{done:8,} steps: return {mean:6.1f}, {rate:,.0f} steps per second")
    return mean


if __name__ == "__main__":
    main()
