"""Soft actor-critic (Haarnoja et al., 2018) on Gymnasium's Pendulum.

    pip install gymnasium
    python examples/sac.py --steps 8000

One program is a whole step of training: the losses of two critics, of the policy and of the
temperature, their gradients, all updates, and the targets, which are state and follow the critics.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from itertools import pairwise

import gymnasium
import numpy as np

import graphc
from graphc import nn, optim

DISCOUNT, FOLLOW, RATE = 0.98, 0.02, 2e-3
BATCH, HIDDEN, BEGIN = 128, 64, 500
"""Samples of a training step; hidden features; steps of random actions before the first one."""


class Net(nn.Module):
    """Dense layers with relu between them."""

    def __init__(self, *sizes: int) -> None:
        self.layers = [nn.Linear(wide, narrow) for wide, narrow in pairwise(sizes)]

    def forward(self, x, trained=True):
        """Without `trained`, the weights have no gradient by this call."""
        pairs = [(layer.weight, layer.bias) for layer in self.layers]
        if not trained:
            pairs = [(graphc.stop_gradient(w), graphc.stop_gradient(b)) for w, b in pairs]
        return dense(pairs, x)


class Target(nn.Module):
    """A network of the same shape, whose weights follow another's."""

    def __init__(self, net: Net) -> None:
        self.weights = [nn.Buffer(layer.weight.numpy()) for layer in net.layers]
        self.biases = [nn.Buffer(layer.bias.numpy()) for layer in net.layers]

    def forward(self, x):
        return dense(list(zip(self.weights, self.biases, strict=True)), x)

    def follow(self, net: Net):
        for i, layer in enumerate(net.layers):
            self.weights[i] = self.weights[i] + FOLLOW * (layer.weight - self.weights[i])
            self.biases[i] = self.biases[i] + FOLLOW * (layer.bias - self.biases[i])


def dense(pairs, x):
    *hidden, (weight, bias) = pairs
    for w, b in hidden:
        x = graphc.relu(graphc.linear(x, w, b))
    return graphc.linear(x, weight, bias)


class Agent(nn.Module):
    """A policy, two critics with their targets, and the temperature."""

    def __init__(self, features: int, actions: int, most: float) -> None:
        self.most = most
        self.policy = Net(features, HIDDEN, HIDDEN, 2 * actions)
        self.critics = [Net(features + actions, HIDDEN, HIDDEN, 1) for _ in range(2)]
        self.targets = [Target(critic) for critic in self.critics]
        self.temperature = nn.Parameter(np.float32(math.log(0.2)))

    def draw(self, seen):
        """Actions f32[n, actions] within -most to most, and their log probabilities f32[n]."""
        mean, spread = graphc.chunk(self.policy(seen), 2, -1)
        spread = graphc.clip(spread, -5.0, 2.0)
        noise = graphc.randn_like(mean)
        free = mean + graphc.exp(spread) * noise
        log = -0.5 * graphc.square(noise) - spread - 0.5 * math.log(2 * math.pi)
        # The logarithm of the derivative of tanh, without a difference of near numbers.
        log = log - 2 * (math.log(2) - free - graphc.softplus(-2 * free)) - math.log(self.most)
        return self.most * graphc.tanh(free), graphc.sum(log, -1)

    def act(self, seen):
        return self.draw(seen)[0]

    def best(self, seen):
        """The most probable actions."""
        return self.most * graphc.tanh(graphc.chunk(self.policy(seen), 2, -1)[0])


def loss_fn(agent, seen, actions, rewards, following, ends):
    """The sum of all losses; no gradient of one reaches what another trains."""
    temperature = graphc.stop_gradient(graphc.exp(agent.temperature))

    further, log = agent.draw(following)
    both = graphc.concat([following, further], -1)
    worth = graphc.minimum(*(target(both)[:, 0] for target in agent.targets))
    wanted = rewards + DISCOUNT * (1 - ends) * (worth - temperature * log)
    wanted, both = graphc.stop_gradient(wanted), graphc.concat([seen, actions], -1)
    errors = [graphc.mse_loss(critic(both)[:, 0], wanted) for critic in agent.critics]

    drawn, log = agent.draw(seen)
    both = graphc.concat([seen, drawn], -1)
    worth = graphc.minimum(*(critic(both, trained=False)[:, 0] for critic in agent.critics))
    policy = graphc.mean(temperature * log - worth)
    surprise = graphc.stop_gradient(graphc.mean(log) - drawn.shape[-1])
    for target, critic in zip(agent.targets, agent.critics, strict=True):
        target.follow(critic)
    return errors[0] + errors[1] + policy - agent.temperature * surprise


class Memory:
    """What happened: seen, action, reward, what was seen next, whether an episode ended there."""

    def __init__(self, count: int, features: int, actions: int) -> None:
        shapes = (features,), (actions,), (), (features,), ()
        self.arrays = [np.zeros((count, *shape), np.float32) for shape in shapes]
        self.count = 0

    def add(self, *values) -> None:
        for array, value in zip(self.arrays, values, strict=True):
            array[self.count] = value
        self.count += 1

    def sample(self, draws: np.random.Generator) -> list[np.ndarray]:
        rows = draws.integers(0, self.count, BATCH)
        return [array[rows] for array in self.arrays]


def train(steps: int, seed: int, name: str = "Pendulum-v1"):
    """Train an agent; yields (steps so far, return) at the end of each episode, and the agent."""
    graphc.seed(seed)
    draws, world = np.random.default_rng(seed), gymnasium.make(name)
    seen, _ = world.reset(seed=seed)
    features, actions = len(seen), world.action_space.shape[0]
    agent = Agent(features, actions, float(world.action_space.high[0]))
    memory = Memory(steps, features, actions)
    act = graphc.compile(agent.act, graphc.spec((1, features)), threads=1)
    shapes = (features,), (actions,), (), (features,), ()
    specs = [graphc.spec((BATCH, *shape)) for shape in shapes]
    learn = graphc.compile(loss_fn, agent, *specs, update=optim.Adam(RATE), threads=1)
    total = 0.0
    for step in range(1, steps + 1):
        if step <= BEGIN:
            action = draws.uniform(-agent.most, agent.most, actions).astype(np.float32)
        else:
            action = act(np.asarray(seen, np.float32)[None])[0]
        following, reward, ends, cut, _ = world.step(action)
        memory.add(seen, action, reward, following, ends)
        seen, total = following, total + float(reward)
        if step > BEGIN:
            learn(*memory.sample(draws))
        if ends or cut:
            yield step, total, agent
            (seen, _), total = world.reset(), 0.0
    world.close()


def main(arguments: Sequence[str] | None = None) -> float:
    """Train, and print returns; the mean of the last 5 episodes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=8000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    begin, returns = time.perf_counter(), [0.0]
    for number, (step, total, _) in enumerate(train(options.steps, options.seed), 1):
        returns.append(total)
        if number % 5 == 0:
            rate = step / (time.perf_counter() - begin)
            mean = np.mean(returns[-5:])
            print(f"{step:7,} steps: return {mean:8.1f}, {rate:,.0f} steps per second")
    return float(np.mean(returns[-5:]))


if __name__ == "__main__":
    main()
