"""Prepare the instructions of one thread that decide branches and addresses for execution."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from tools.gpu_model.meaning import MEANINGS, Made
from tools.gpu_model.sass import PREDICATE, REGISTER, Block, Instruction
from tools.gpu_model.state import InstructionIndex, State, UnknownError, terms_of

Action = Callable[[State], None]
TRACED = {"LDG": 1, "STG": 0, "LDGSTS": 1, "LDS": 1, "LDSM": 1, "STS": 0}
"""The accesses whose addresses are traced, with the number of the address operand."""

MOST_ADDRESSES = 64
"""Traced addresses per access."""
_NO_RESULT = frozenset(
    """STG STS STL ST RED ATOMG BAR BRA EXIT DEPBAR LDGDEPBAR LDGSTS BSSY BSYNC MEMBAR ERRBAR NOP
    WARPSYNC RET CALL UTMALDG UTMASTG UBLKCP FENCE CCTL CCTLL BREAK YIELD NANOSLEEP WARPGROUP BPT
    UTMAPF UTMACMDFLUSH ARRIVES USETMAXREG STSM PREEXIT ACQBULK BRX JMP JMX""".split()
)
_UNKNOWN = (UnknownError, TypeError, ValueError, KeyError, IndexError)
"""Errors of unknown operands, and of operand forms that `meaning.py` does not expect."""


def steps_of(blocks: Sequence[Block], traced: bool = False) -> list[list[Action]]:
    """For each block of code, the actions that compute what branches depend on; with `traced` also
    those that record addresses."""
    needed = {condition.lstrip("!") for block in blocks for condition in block.conditions}
    if traced:
        for instruction in (i for b in blocks for i in b.instructions):
            if instruction.name in TRACED:
                needed |= _read(instruction) | set(_highs(instruction))
            elif instruction.name == "ATOMG":
                needed.add(instruction.operands[-1])
    every = [(i, results(i)) for block in blocks for i in block.instructions]
    before = -1
    while len(needed) > before:
        before = len(needed)
        for instruction, written in every:
            if needed.intersection(written):
                needed |= _read(instruction)
    return [list(_steps(i, block, needed, traced)) for i, block in enumerate(blocks)]


def results(instruction: Instruction) -> list[str]:
    """The registers and predicates that it writes."""
    if instruction.name in _NO_RESULT:
        return []
    if instruction.name == "R2P":
        return [f"P{i}" for i in range(7)]
    written: list[str] = []
    for operand in instruction.operands[: _count_results(instruction)]:
        written += _wide(instruction, operand) if REGISTER.match(operand) else [operand]
    return written


def _steps(number: int, block: Block, needed: set[str], traced: bool) -> Iterator[Action]:
    for place, instruction in enumerate(block.instructions):
        if traced and instruction.name == "ATOMG" and "INC" in instruction.modifiers:
            yield _drawing(instruction)
        if traced and instruction.name in TRACED and instruction.guard != "!PT":
            yield _tracing((number, place), instruction)
        written = results(instruction)
        if needed.intersection(written):
            yield _computing(instruction, written)


def _tracing(place: InstructionIndex, instruction: Instruction) -> Action:
    terms = terms_of(instruction.operands[TRACED[instruction.name]])
    guards = tuple(o for o in instruction.operands[2:] if PREDICATE.match(o))
    guards += (instruction.guard,) if instruction.guard else ()

    def step(state: State) -> None:
        address = None
        if state.holding(guards) is not False:
            try:
                address = state.total(terms)
            except UnknownError:
                address = None
        found = state.traced.setdefault(place, [])
        if len(found) < MOST_ADDRESSES:
            found.append(address)
        state.accesses += 1
        if address is not None:
            state.order.append((place, address))

    return step


def _drawing(instruction: Instruction) -> Action:
    """Draws a ticket; after the last number the counter restarts."""

    def step(state: State) -> None:
        try:
            state.drawn.append(state.get(instruction.operands[-1]) + 1)
        except UnknownError:
            state.drawn.append(1)

    return step


def _computing(instruction: Instruction, written: Sequence[str]) -> Action:
    meaning = MEANINGS.get(instruction.name.removeprefix("U"))
    count, modifiers = _count_results(instruction), instruction.modifiers
    names, operands = instruction.operands[:count], instruction.operands[count:]
    real = [name for name in written if name not in ("RZ", "URZ", "PT", "UPT")]
    guard = (instruction.guard,) if instruction.guard else ()

    def step(state: State) -> None:
        holds = state.holding(guard)
        if holds is False:
            return
        made: Made = {}
        if meaning is not None and holds:
            try:
                made = meaning(state, names, operands, modifiers)
            except _UNKNOWN:
                made = {}
        for name in real:
            state.values[name] = made.get(name)

    return step


def _count_results(instruction: Instruction) -> int:
    """The number of leading operands that are results."""
    if "SETP" in instruction.name or instruction.name in ("PLOP3", "UPLOP3"):
        return 2
    if instruction.name == "B2R":
        return len(instruction.operands)
    count, register = 0, False
    for operand in instruction.operands:
        if REGISTER.match(operand) and not register:
            register = True
        elif not PREDICATE.match(operand) or operand.startswith("!"):
            break
        count += 1
    return min(count, max(1, len(instruction.operands) - 1))


def _wide(instruction: Instruction, register: str) -> list[str]:
    """The registers of a result of one or more registers."""
    found = re.match(r"(U?R)(\d+)$", register)
    if not found:
        return [register]
    count, name, modifiers = 1, instruction.name, instruction.modifiers
    if "WIDE" in modifiers or (name == "CS2R" and "32" not in modifiers):
        count = 2
    elif name[:2] in ("LD", "UL") and modifiers & {"64", "128"}:
        count = 4 if "128" in modifiers else 2
    elif name in ("HMMA", "LDSM"):
        count = 4
    return [f"{found[1]}{int(found[2]) + i}" for i in range(count)]


def _read(instruction: Instruction) -> set[str]:
    """The registers and predicates that it reads or that its operands name."""
    text = " ".join((*instruction.operands, instruction.guard))
    used = set(re.findall(r"\bU?[RP]\d+\b", text))
    wide = bool(instruction.modifiers & {"WIDE", "HI"})
    for name, number, pair in re.findall(r"\b(U?R)(\d+)(\.64)?", text):
        if wide or pair:
            used.add(f"{name}{int(number) + 1}")
    return used


def _highs(instruction: Instruction) -> Iterator[str]:
    """The high halves of 64-bit address registers."""
    for term in terms_of(instruction.operands[TRACED[instruction.name]]):
        found = re.match(r"(U?R)(\d+)$", term.register)
        if term.wide and found:
            yield f"{found[1]}{int(found[2]) + 1}"
