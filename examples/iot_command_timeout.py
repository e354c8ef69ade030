"""A command to a device times out when no acknowledgement comes within 5 seconds.

Producer and handler are coroutines on one event loop. Thousands of commands may be under way: what
many coroutines ask for in one moment becomes one call of the store.

The same is shown twice: with tasks, which a store can keep over a restart ("memory:" stands for it
here), and with timers, which end with the process and cost next to nothing, even a million.

    python examples/iot_command_timeout.py
"""

import asyncio

from tarry import Context, Tarry
from tarry.timers import AsyncTimers, Callback, CallbackTimers

app = Tarry("memory:", namespace="iot")
commands: dict[tuple[str, int], str] = {}
timed_out = asyncio.Event()


@app.task("command.timeout", key="{device}:{seq}")
async def command_timed_out(ctx: Context, device: str, seq: int) -> None:
    if commands[device, seq] == "sent":
        commands[device, seq] = "timed out"
        print(f"{device}: command {seq} timed out ({ctx.lateness * 1_000:.1f} ms late)")
        timed_out.set()


async def send(device: str, seq: int, answer_within: str = "5s") -> None:
    commands[device, seq] = "sent"
    await command_timed_out.aschedule(answer_within, device, seq)


async def acknowledged(device: str, seq: int) -> bool:
    """Note the device's answer; false if the command had timed out before."""
    if commands[device, seq] != "sent":
        return False
    commands[device, seq] = "acknowledged"
    await command_timed_out.acancel(device=device, seq=seq)
    return True


class Commands:
    """The same in memory alone."""

    def __init__(self, timers: CallbackTimers) -> None:
        self.timers = timers
        self.waiting: dict[tuple[str, int], Callback] = {}
        self.lost: list[str] = []

    def send(self, device: str, seq: int, answer_within: str = "5s") -> None:
        self.waiting[device, seq] = self.timers.after(answer_within, self.timed_out, device, seq)

    def acknowledged(self, device: str, seq: int) -> bool:
        """Note the device's answer; false if the command had timed out before."""
        timer = self.waiting.pop((device, seq), None)
        return timer is not None and timer.cancel()

    def timed_out(self, device: str, seq: int) -> None:
        del self.waiting[device, seq]
        self.lost.append(device)


async def main() -> None:
    with app:
        async with app.aworker():
            # 300 ms stand for the 5 s. Lamp 7 is switched off and does not answer.
            devices = [f"lamp-{number}" for number in range(100)]
            await asyncio.gather(*(send(device, 1, "300ms") for device in devices))
            answering = [device for device in devices if device != "lamp-7"]
            answers = await asyncio.gather(*(acknowledged(device, 1) for device in answering))
            print(f"{sum(answers)} of {len(devices)} devices answered in time")
            await asyncio.wait_for(timed_out.wait(), 10)

    async with AsyncTimers() as timers:
        many = Commands(timers)
        for device in range(20_000):
            many.send(f"meter-{device}", 1, "100ms" if device == 7 else "5s")
        await timers.sleep("200ms")
        answers = [many.acknowledged(f"meter-{device}", 1) for device in range(20_000)]
        print(f"in memory: {sum(answers):,} of 20,000 answered in time, {many.lost} did not")


if __name__ == "__main__":
    asyncio.run(main())
