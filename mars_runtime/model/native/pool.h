// Thread pool for forward passes.
//
// `Pool::run` calls a function on n threads at once, including the caller's. Within it,
// `Team::each` distributes tasks and ends with a barrier. A forward pass has hundreds of phases
// that take microseconds, so waiting threads spin, but only briefly: next to a busy process the
// awaited thread may not be running, and a spinning thread would take the processor time that it
// needs. Threads are never joined, because a process may end or fork at any time.
#pragma once

#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif
#ifndef _WIN32
#include <pthread.h>
#endif

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

static inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Microseconds that a waiting thread spins before it sleeps: within a forward pass, and between
// two. The latter is longer, because the next forward pass often follows immediately.
constexpr int SPIN_IN_FORWARD = 10;
constexpr int SPIN_BETWEEN = 500;

// A number; threads can wait until it changes.
class Signal {
 public:
  uint32_t get() const { return value_.load(std::memory_order_acquire); }
  // Sets the value without waking threads. Call it before any thread waits.
  void prepare(uint32_t value) { value_.store(value, std::memory_order_relaxed); }
  void set(uint32_t value) {
    value_.store(value);
    wake();
  }
  void count_down() {
    if (value_.fetch_sub(1) == 1) wake();
  }

  // Waits until the value differs from `old`, and returns it. microseconds: how long to spin.
  uint32_t wait_while(uint32_t old, int microseconds) {
    std::chrono::steady_clock::time_point until;
    for (int round = 1;; round++) {
      uint32_t value = get();
      if (value != old) return value;
      relax();
      if (round % 64) continue;
      auto now = std::chrono::steady_clock::now();
      if (round == 64) until = now + std::chrono::microseconds(microseconds);
      if (now > until) break;
    }
    num_asleep_.fetch_add(1);
    while (value_.load() == old) sleep(old);
    num_asleep_.fetch_sub(1);
    return get();
  }

 private:
#ifdef __linux__
  // The kernel returns immediately if the value is no longer `old`.
  void sleep(uint32_t old) { syscall(SYS_futex, &value_, FUTEX_WAIT_PRIVATE, old, nullptr, 0, 0); }
  void wake() {
    if (num_asleep_.load() > 0) syscall(SYS_futex, &value_, FUTEX_WAKE_PRIVATE, INT32_MAX, 0, 0, 0);
  }
#else
  // A sleeping thread increments num_asleep_ before it checks the value. A waking thread sets the
  // value before it checks num_asleep_. So one of the two always notices the other.
  void sleep(uint32_t old) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return value_.load() != old; });
  }
  void wake() {
    if (num_asleep_.load() == 0) return;
    { std::lock_guard<std::mutex> lock(mutex_); }
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
#endif

  alignas(64) std::atomic<uint32_t> value_{0};
  std::atomic<int> num_asleep_{0};
};

constexpr int MAX_THREADS = 64;

class Team {
 public:
  explicit Team(int size) : size(size) {}

  // Calls task(i) for each i < count, then waits until all threads have finished. Each thread has a
  // fixed share of the tasks. The share is the same in every phase with this count, so its data is
  // still in the thread's caches. A thread that has finished its share helps with other shares.
  template <class Task>
  void each(int thread, int count, Task task) {
    if (size == 1) {
      for (int i = 0; i < count; i++) task(i);
      return;
    }
    for (int k = 0; k < size; k++) {
      int whose = thread + k < size ? thread + k : thread + k - size;
      int first = (int)((int64_t)count * whose / size), end = (int)((int64_t)count * (whose + 1) / size);
      std::atomic<int>& taken = taken_[whose].value;
      while (taken.load(std::memory_order_relaxed) < end - first) {
        int i = first + taken.fetch_add(1, std::memory_order_relaxed);
        if (i < end) task(i);
      }
    }
    meet();
  }

  // A barrier: returns when every thread of the team has called it.
  void meet() {
    if (size == 1) return;
    uint32_t now = meetings_.get();
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) == size - 1) {
      arrived_.store(0, std::memory_order_relaxed);
      for (int i = 0; i < size; i++) taken_[i].value.store(0, std::memory_order_relaxed);
      meetings_.set(now + 1);
    } else {
      meetings_.wait_while(now, SPIN_IN_FORWARD);
    }
  }

  const int size;

 private:
  struct alignas(64) Taken {
    std::atomic<int> value{0};
  };

  Taken taken_[MAX_THREADS];  // number of tasks of each thread's share that were started
  alignas(64) std::atomic<int> arrived_{0};
  Signal meetings_;
};

class Pool {
 public:
  // Returns the pool of this process. A forked child starts with a new pool.
  static Pool& shared() {
#ifndef _WIN32
    static std::once_flag once;
    std::call_once(once, [] { pthread_atfork(nullptr, nullptr, [] { current() = new Pool; }); });
#endif
    return *current();
  }

  // Calls work(team, thread) on `size` threads at once.
  template <class Work>
  void run(int size, Work work) {
    Team team(size);
    if (size == 1) return work(team, 0);
    std::lock_guard<std::mutex> turn(turn_);
    for (; num_workers_ < size - 1; num_workers_++)
      std::thread(&Pool::serve, this, num_workers_ + 1).detach();
    struct Job {
      Work& work;
      Team& team;
    } job{work, team};
    job_ = &job;
    call_ = [](void* given, int thread) {
      Job& job = *static_cast<Job*>(given);
      job.work(job.team, thread);
    };
    left_.prepare(size - 1);
    // The ticket is the number of the job; its lowest byte is the number of threads.
    ticket_.set(((ticket_.get() >> 8) + 1) << 8 | (uint32_t)size);
    work(team, 0);
    for (uint32_t left = left_.get(); left;) left = left_.wait_while(left, SPIN_IN_FORWARD);
  }

 private:
  static Pool*& current() {
    static Pool* pool = new Pool;  // never freed, because its threads may outlive all destructors
    return pool;
  }

  void serve(int thread) {
    for (uint32_t seen = 0;;) {
      seen = ticket_.wait_while(seen, SPIN_BETWEEN);
      if (thread >= (int)(seen & 255)) continue;
      call_(job_, thread);
      left_.count_down();
    }
  }

  std::mutex turn_;
  Signal ticket_, left_;
  int num_workers_ = 0;
  void* job_ = nullptr;
  void (*call_)(void*, int) = nullptr;
};
