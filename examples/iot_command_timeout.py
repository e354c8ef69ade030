"""A command to a device times out when no acknowledgement comes within 5 seconds.

Producer and handler are coroutines on one event loop. Thousands of commands may be under way: what
many coroutines ask for in one moment becomes one call of the store.

    python examples/iot_command_timeout.py
"""

import asyncio

from tarry import Context, Tarry

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


if __name__ == "__main__":
    asyncio.run(main())
