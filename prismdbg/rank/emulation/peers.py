"""The peers of an emulated rank: they answer every collective by policy, and keep what this rank sends for others."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from prismdbg.model import synthesis
from prismdbg.model.collective import Identity
from prismdbg.model.ops import ONLY_THE_SENDER_KNOWS, Movement
from prismdbg.rank.c10d.call import Call, bytes_of
from prismdbg.rank.emulation import checkpoints, exchange, filling
from prismdbg.rank.emulation.answers import Answered, Asked
from prismdbg.rank.emulation.control import holds_it_already, is_control, object_call
from prismdbg.rank.emulation.outbox import OBJECT_GATHERS, Inbox, KeptAlready, Outbox, ValueAddress
from prismdbg.rank.emulation.real_groups import RealGroups
from prismdbg.rank.emulation.scheduler_client import SchedulerClient, program_line
from prismdbg.rank.program.isolation import unseen
from prismdbg.settings.donor_value import DonorValue
from prismdbg.settings.emulation import Emulation, Policy
from prismdbg.settings.mesh_axes import Axes
from prismdbg.settings.missing_value import MissingValue


class EmulatedPeers:
    """`answer` is called once for every collective, on the issuing thread."""

    def __init__(self, settings: Emulation, turn: SchedulerClient, real: RealGroups) -> None:
        self._settings = settings
        self._turn = turn
        self._real = real
        self._axes = Axes(settings.axes)
        self.inbox = Inbox(settings)
        turn.after.append(self.inbox.refresh)
        self.outbox: Outbox | KeptAlready = KeptAlready() if settings.schedule else Outbox(settings, turn)
        self._members: dict[str, list[int]] = {}
        self._exchange = exchange.Exchange()
        self.rests_on_assumptions = False
        self._shaping: Counter[tuple[str, str, str, str]] = Counter()
        self._counts: Counter[tuple[str, str, str]] = Counter()
        self._bytes: Counter[tuple[str, str, str]] = Counter()

    def answer(self, call: Call, identity: Identity, *, can_be_later: bool = False) -> Answered:
        """`can_be_later`: what can be filled by another thread need not be filled at once."""
        members = self.members_of(call)
        axis = self._axes.name_of(call.group_name, members)
        policy = self._policy(call, axis)
        meets = self._exchange.meets(call, policy, members)
        with unseen():
            self.outbox.keep(call, identity, axis, members, meets=meets)
            asked = Asked(
                call=call,
                identity=identity,
                axis=axis,
                policy=policy,
                meets=meets,
                members=members,
                outputs=[t.detach() for t in call.received],
                inputs=[t.detach() for t in call.inputs],
                can_be_later=can_be_later,
            )
            answered = self._with_partners(asked) or self._alone(asked)
        entry = axis, call.spec.label, answered.how
        self._counts[entry] += 1
        self._bytes[entry] += bytes_of(call.received)
        self._note_shaping(call, axis, answered.how)
        return answered

    def _with_partners(self, asked: Asked) -> Answered | None:
        """Together with the members that run at once, where there are any."""
        partners = self._real.partners(asked.call.group_name)
        answered = None if partners is None else partners.answer(asked, lambda: self._alone(asked))
        if answered is not None and answered.how == synthesis.ECHO_AND_DONOR:
            self.rests_on_assumptions = True
        return answered

    def _alone(self, asked: Asked) -> Answered:
        return self._given(asked) if asked.call.spec.movement in ONLY_THE_SENDER_KNOWS else self._joined(asked)

    def _note_shaping(self, call: Call, axis: str, how: str) -> None:
        """Counts that nobody sent, or that peers computed from values that nobody sent: sizes follow from them."""
        if how in synthesis.FROM_OTHERS or how in (synthesis.OWN, synthesis.NOTHING):
            if exchange.is_routing(call) and self.rests_on_assumptions:
                self._shaping[axis, call.spec.label, synthesis.DONOR, program_line()] += 1
            return
        if exchange.is_routing(call):
            self._shaping[axis, call.spec.label, how, program_line()] += 1
        is_start = call.spec.movement is Movement.BROADCAST and holds_it_already()
        self.rests_on_assumptions |= bool(bytes_of(call.received)) and not is_start

    def shaping(self) -> list[dict[str, Any]]:
        """Counts of which the sizes of later calls follow, and that are not the job's: a row for each line and way."""
        return [
            {"axis": axis, "collective": label, "how": how, "where": where, "count": count}
            for (axis, label, how, where), count in sorted(self._shaping.items())
        ]

    def _policy(self, call: Call, axis: str) -> Policy:
        """Objects are never made up, whatever the rule for the axis: nobody could unpickle them."""
        if is_control(call.outputs) and object_call():
            return Policy.AUTO
        return self._settings.policy(axis, call.spec.label)

    def summary(self) -> list[dict[str, Any]]:
        """What was made up, and how: a row for each axis, collective and way."""
        return [
            {"axis": axis, "collective": label, "how": how, "count": count, "bytes": self._bytes[axis, label, how]}
            for (axis, label, how), count in sorted(self._counts.items())
        ]

    def members_of(self, call: Call) -> list[int]:
        """Global ranks in group order."""
        known = self._members.get(call.group_name)
        if known is None:
            try:
                known = list(dist.get_process_group_ranks(call.group))
            except (KeyError, ValueError):  # the world's group while it is being made
                known = list(range(call.size))
            self._members[call.group_name] = known
        return known

    def _joined(self, asked: Asked) -> Answered:
        """All members do the same: what peers send may be taken to be like what this rank sends."""
        outputs, policy = asked.outputs, asked.policy
        if not outputs:
            return Answered(how=synthesis.NOTHING)
        if policy is Policy.ZEROS:
            filling.zeros(outputs)
        elif policy is Policy.NOISE:
            filling.noise(outputs, self._seed(asked))
        elif policy is Policy.BALANCED and asked.call.spec.movement is Movement.ALL_TO_ALL and is_control(outputs):
            filling.balanced(outputs, asked.inputs)
        elif policy is Policy.DONOR:
            self._load(self._similar(asked), outputs)
        elif asked.meets and self._from_members(asked, waits=False):
            return Answered(how=synthesis.DONOR)
        elif routed := self._recorded_routing(asked):
            self._load(routed, outputs)
            return Answered(how=synthesis.DONOR)
        elif asked.meets and self._from_members(asked, waits=True):
            return Answered(how=synthesis.DONOR)
        else:
            return self._echo(asked)
        return Answered(how=str(policy))

    def _recorded_routing(self, asked: Asked) -> DonorValue | None:
        """Who sends how much to this rank, and what, is not guessed where an earlier run says it."""
        if asked.policy is not Policy.AUTO or asked.call.spec.movement is not Movement.ALL_TO_ALL:
            return None
        value = self.inbox.find_similar(asked.call, asked.identity, asked.axis)
        return value if self._fits(value, asked.outputs) else None

    def _from_members(self, asked: Asked, *, waits: bool) -> bool:
        """Whether they sent it. waits: this rank stands until they have, for counts as long as it takes."""
        call, is_routing = asked.call, exchange.is_routing(asked.call)
        wanted = exchange.wanted(call, asked.identity)
        if wanted is None:
            return False
        said = {}
        for key, (place, size_bytes) in wanted.items():
            if waits:
                self._await(asked, key, place, size_bytes, is_optional=not is_routing)
            value = self.inbox.contribution(key)
            if value is None or value.size_bytes != size_bytes:
                return False
            said[place] = value
        if is_routing:
            self._exchange.began(asked.members)
        exchange.fill(call, asked.outputs, asked.inputs, {at: self.inbox.load(value) for at, value in said.items()})
        return True

    def _await(self, asked: Asked, key: str, place: int, size_bytes: int, *, is_optional: bool) -> None:
        """Until the member has sent it; what is optional is asked for once."""
        is_first = True
        while (value := self.inbox.contribution(key)) is None or (value.size_bytes != size_bytes and not is_optional):
            if is_optional and not is_first:
                return
            is_first = False
            self._turn.lacks(
                MissingValue(
                    rank=self._settings.rank,
                    source=asked.members[place],
                    key=key,
                    collective=asked.call.spec.label,
                    axis=asked.axis,
                    identity=str(asked.identity),
                    is_optional=is_optional,
                )
            )

    def _echo(self, asked: Asked) -> Answered:
        fill = partial(filling.echo, asked.call, asked.outputs, asked.inputs)
        if asked.can_be_later and not is_control(asked.outputs):
            return Answered(how=synthesis.ECHO, later=fill)
        fill()
        if asked.call.spec.name in OBJECT_GATHERS and is_control(asked.outputs) and object_call():
            checkpoints.accept_partial_plans()
            said = self.inbox.contributions(asked.call, asked.identity, asked.members)
            for place, data in said.items():
                filling.pour(asked.outputs[place], data)
            return Answered(how=synthesis.ECHO_AND_DONOR if said else synthesis.ECHO)
        return Answered(how=synthesis.ECHO)

    def _similar(self, asked: Asked) -> DonorValue:
        """A donor's value of the very size: lengths and indices of another would lead nowhere."""
        while True:
            value = self.inbox.find_similar(asked.call, asked.identity, asked.axis)
            if value is not None and self._fits(value, asked.outputs):
                return value
            self._turn.lacks(self._lacked(asked, None, value))

    def _given(self, asked: Asked) -> Answered:
        """Only the sender knows the value."""
        call = asked.call
        letter = self.inbox.address(call, asked.identity, asked.axis)
        if not any(t.numel() for t in asked.outputs):
            return Answered(how=synthesis.NOTHING, source=letter.source)
        if call.spec.movement is Movement.SCATTER and call.root == call.rank:
            asked.outputs[0].copy_(asked.inputs[call.rank])
            return Answered(how=synthesis.OWN, source=letter.source)
        if self._is_lacking(asked, letter):
            if call.spec.is_p2p:
                filling.zeros(asked.outputs)  # it may have been posted only, to be waited for after a send
                fill = partial(self._receive, asked, letter)
                return Answered(how=synthesis.DONOR, source=letter.source, fill=fill)
            self._receive(asked, letter)
            return Answered(how=synthesis.DONOR, source=letter.source)
        return self._given_at_once(asked, letter)

    def _receive(self, asked: Asked, letter: ValueAddress) -> None:
        """Stands until the sender has sent it."""
        while self._is_lacking(asked, letter):
            self._turn.lacks(self._lacked(asked, letter))
        with unseen():
            value = self._value(asked, letter)
            assert value is not None
            self._load(value, asked.outputs)

    def _is_lacking(self, asked: Asked, letter: ValueAddress) -> bool:
        """Whether nobody said it, and it may not be made up."""
        if self._held_already(asked) or self._fits(self._value(asked, letter), asked.outputs):
            return False
        return asked.policy is Policy.DONOR or (asked.policy is Policy.AUTO and is_control(asked.outputs))

    def _value(self, asked: Asked, letter: ValueAddress) -> DonorValue | None:
        return self.inbox.find(asked.call, asked.identity, asked.axis, letter)

    @staticmethod
    def _fits(value: DonorValue | None, outputs: list[torch.Tensor]) -> bool:
        return value is not None and value.size_bytes == bytes_of(outputs)

    @staticmethod
    def _held_already(asked: Asked) -> bool:
        return asked.policy is Policy.AUTO and asked.call.spec.movement is Movement.BROADCAST and holds_it_already()

    def _given_at_once(self, asked: Asked, letter: ValueAddress) -> Answered:
        outputs, policy, value, source = asked.outputs, asked.policy, self._value(asked, letter), letter.source
        if policy in (Policy.AUTO, Policy.DONOR) and value is not None and self._fits(value, outputs):
            self._load(value, outputs)
            return Answered(how=synthesis.DONOR, source=source)
        if policy is Policy.ECHO or self._held_already(asked):
            filling.echo(asked.call, outputs, [])
            return Answered(how=synthesis.ECHO, source=source)
        if policy is Policy.ZEROS:
            filling.zeros(outputs)
            return Answered(how=synthesis.ZEROS, source=source)
        if value is None or value.mean is None or value.deviation is None:
            filling.noise(outputs, self._seed(asked))
            return Answered(how=synthesis.NOISE, source=source)
        filling.noise(outputs, self._seed(asked), value.mean, value.deviation)
        return Answered(how=synthesis.NOISE_LIKE, source=source, like=(value.mean, value.deviation))

    def _load(self, value: DonorValue, outputs: list[torch.Tensor]) -> None:
        data = memoryview(self.inbox.load(value))
        for tensor in outputs:
            size = bytes_of([tensor])
            filling.pour(tensor, data[:size])
            data = data[size:]

    def _seed(self, asked: Asked) -> int:
        return filling.seed_of(self._settings.seed, self._settings.rank, asked.identity)

    def _lacked(self, asked: Asked, letter: ValueAddress | None, unfit: DonorValue | None = None) -> MissingValue:
        size = f"; the donor's has {unfit.size_bytes} bytes, not {bytes_of(asked.outputs)}" if unfit else ""
        is_named = letter is not None and not asked.call.spec.is_from_any
        return MissingValue(
            rank=self._settings.rank,
            source=asked.members[letter.source] if letter is not None and is_named else -1,
            key=letter.key if letter is not None else "",
            collective=asked.call.spec.label,
            caller=object_call(),
            axis=asked.axis,
            identity=f"{asked.identity}{size}",
        )
