// The peers on the JVM: java -cp netty-common.jar Peers.java NAME N ROUNDS | NAME late SECONDS; prints one JSON object.
// NAME: delayqueue, stpe (ScheduledThreadPoolExecutor, remove on cancel), netty (HashedWheelTimer, tick 10 ms, or 1 ms for "late").
// Costs are the best of the rounds, in ns; `expire` drains what a held worker has let become due, in the peers' favour.

import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;

public class Peers {
    interface Side {
        Object arm(long delayNs, Runnable call);
        void disarm(Object handle);
        void close();
    }

    static final class Item implements Delayed {
        static volatile long now;
        final long due; final Runnable call;
        Item(long due, Runnable call) { this.due = due; this.call = call; }
        public long getDelay(TimeUnit unit) { return unit.convert(due - now, TimeUnit.NANOSECONDS); }
        public int compareTo(Delayed other) { return Long.compare(due, ((Item) other).due); }
    }

    static final class Queued implements Side {
        final DelayQueue<Item> queue = new DelayQueue<>();
        public Object arm(long delay, Runnable call) { Item item = new Item(delay, call); queue.add(item); return item; }
        public void disarm(Object handle) { queue.remove(handle); }
        public void close() { }
    }

    static final class Pooled implements Side {
        final ScheduledThreadPoolExecutor pool = new ScheduledThreadPoolExecutor(1);
        Pooled() { pool.setRemoveOnCancelPolicy(true); }
        public Object arm(long delay, Runnable call) { return pool.schedule(call, delay, TimeUnit.NANOSECONDS); }
        public void disarm(Object handle) { ((Future<?>) handle).cancel(false); }
        public void close() { pool.shutdownNow(); }
    }

    static final class Netty implements Side {
        final io.netty.util.HashedWheelTimer timer;
        Netty(long tickMs) { timer = new io.netty.util.HashedWheelTimer(tickMs, TimeUnit.MILLISECONDS, 512); }
        public Object arm(long delay, Runnable call) { return timer.newTimeout(t -> call.run(), delay, TimeUnit.NANOSECONDS); }
        public void disarm(Object handle) { ((io.netty.util.Timeout) handle).cancel(); }
        public void close() { timer.stop(); }
    }

    static Side make(String name, long tickMs) {
        return switch (name) { case "delayqueue" -> new Queued(); case "stpe" -> new Pooled(); default -> new Netty(tickMs); };
    }

    static long used() {
        for (int i = 0; i < 3; i++) { System.gc(); }
        return Runtime.getRuntime().totalMemory() - Runtime.getRuntime().freeMemory();
    }

    public static void main(String[] args) throws Exception {
        if (args[1].equals("late")) { late(args[0], Double.parseDouble(args[2])); }
        else { costs(args[0], Integer.parseInt(args[1]), Integer.parseInt(args[2])); }
        System.exit(0);
    }

    static void costs(String name, int n, int rounds) throws Exception {
        Random chance = new Random(1);
        long[] delays = new long[n];
        for (int i = 0; i < n; i++) { delays[i] = 1_000_000_000L + (long) (chance.nextDouble() * 3_599e9); }
        int[] order = new int[n];
        for (int i = 0; i < n; i++) { order[i] = i; }
        for (int i = n - 1; i > 0; i--) { int j = chance.nextInt(i + 1), k = order[i]; order[i] = order[j]; order[j] = k; }
        boolean slowRemove = name.equals("delayqueue");
        // Its remove is O(n): a part of it says as much.
        int disarmed = slowRemove ? Math.min(n, Math.max(100, (int) (200_000_000L / Math.max(n, 1)))) : n;
        double arm = 1e18, disarm = 1e18, expire = 1e18, bytes = 0;
        Runnable nothing = () -> { };
        for (int round = 0; round < rounds; round++) {
            Object[] handles = new Object[n];
            Side side = make(name, 10);
            long before = used();
            long begun = System.nanoTime();
            for (int i = 0; i < n; i++) { handles[i] = side.arm(delays[i], nothing); }
            arm = Math.min(arm, (System.nanoTime() - begun) / (double) n);
            bytes = (used() - before) / (double) n;
            begun = System.nanoTime();
            for (int i = 0; i < disarmed; i++) { side.disarm(handles[order[i]]); }
            disarm = Math.min(disarm, (System.nanoTime() - begun) / (double) disarmed);
            side.close();
            handles = null;
            expire = Math.min(expire, expire(name, n, delays));
        }
        System.out.printf(Locale.ROOT, "{\"arm\": %.1f, \"disarm\": %.1f, \"expire\": %.1f, \"bytes\": %.1f}%n", arm, disarm, expire, bytes);
    }

    static double expire(String name, int n, long[] delays) throws Exception {
        Side side = make(name, 10);
        AtomicInteger left = new AtomicInteger(n);
        CountDownLatch done = new CountDownLatch(1);
        Runnable count = () -> { if (left.decrementAndGet() == 0) { done.countDown(); } };
        if (side instanceof Queued queued) {
            Item.now = 0;
            for (long delay : delays) { side.arm(delay, count); }
            long begun = System.nanoTime();
            for (long second = 0; second <= 3_601 && left.get() > 0; second++) {
                Item.now = second * 1_000_000_000L;
                for (Item item; (item = queued.queue.poll()) != null;) { item.call.run(); }
            }
            Item.now = 0;
            return (System.nanoTime() - begun) / (double) n;
        }
        CountDownLatch held = new CountDownLatch(1), begins = new CountDownLatch(1);
        side.arm(0, () -> { begins.countDown(); try { held.await(); } catch (InterruptedException e) { } });
        begins.await();
        for (long delay : delays) { side.arm(delay / 36_000, count); }
        Thread.sleep(150);
        long begun = System.nanoTime();
        held.countDown();
        done.await();
        double each = (System.nanoTime() - begun) / (double) n;
        side.close();
        return each;
    }

    static void late(String name, double seconds) throws Exception {
        int many = 10_000;
        Side side = make(name, 1);
        long end = System.nanoTime() + (long) (seconds * 1e9);
        ConcurrentLinkedQueue<Long> found = new ConcurrentLinkedQueue<>();
        Random chance = new Random(1);
        class Again implements Runnable {
            long due;
            void arm() { long delay = (long) (chance.nextDouble() * 2e9); due = System.nanoTime() + delay; side.arm(delay, this); }
            public void run() { found.add(System.nanoTime() - due); if (System.nanoTime() < end) { arm(); } }
        }
        for (int i = 0; i < many; i++) { new Again().arm(); }
        Thread.sleep((long) (seconds * 1_000) + 500);
        List<Long> sorted = new ArrayList<>(found);
        Collections.sort(sorted);
        System.out.printf(Locale.ROOT, "{\"p50\": %.1f, \"p99\": %.1f, \"early\": %d}%n", sorted.get(sorted.size() / 2) / 1e3,
            sorted.get((int) (sorted.size() * 0.99)) / 1e3, sorted.stream().filter(x -> x < 0).count());
    }
}
