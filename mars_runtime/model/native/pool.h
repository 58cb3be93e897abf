// Threads that share out one forward.
//
// `Pool::run` calls a function on n threads at once, the caller's among them. Inside, `Team::each`
// shares out tasks, whoever is free taking the next, and returns to each thread when all are done.
// Waiting spins, because a forward has hundreds of phases of microseconds; a thread that waited
// long lets others run, and between forwards the threads fall asleep. They are never joined: a
// process may end, or fork, at any time.
#pragma once

#include <pthread.h>
#include <sched.h>

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

// Waits until `is_done` says so; after a while the processor is offered to others between looks.
template <class Condition>
static inline void spin(Condition is_done) {
  for (int round = 0; !is_done(); round++) {
    if (round < 2000) {
      relax();
    } else {
      sched_yield();
    }
  }
}

class Team {
 public:
  explicit Team(int size) : size(size) {}

  // Calls task(i) for each i < count, taken in runs of `run` by whoever is free; a barrier follows.
  template <class Task>
  void each(int count, int run, Task task) {
    if (size == 1) {
      for (int i = 0; i < count; i++) task(i);
      return;
    }
    for (;;) {
      int first = next_.fetch_add(run, std::memory_order_relaxed);
      if (first >= count) break;
      int end = first + run < count ? first + run : count;
      for (int i = first; i < end; i++) task(i);
    }
    meet();
  }

  // Returns when every thread has come here.
  void meet() {
    if (size == 1) return;
    unsigned now = meetings_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) == size - 1) {
      arrived_.store(0, std::memory_order_relaxed);
      next_.store(0, std::memory_order_relaxed);
      meetings_.store(now + 1, std::memory_order_release);
    } else {
      spin([&] { return meetings_.load(std::memory_order_acquire) != now; });
    }
  }

  const int size;

 private:
  alignas(64) std::atomic<int> next_{0};
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<unsigned> meetings_{0};
};

class Pool {
 public:
  // The one pool of this process; a child of a fork begins with a new one.
  static Pool& shared() {
    static std::once_flag once;
    std::call_once(once, [] { pthread_atfork(nullptr, nullptr, [] { current() = new Pool; }); });
    return *current();
  }

  // work(team, thread) on `size` threads at once.
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
    left_.store(size - 1, std::memory_order_relaxed);
    {
      // The number of the job, and in its lowest byte how many threads are in it.
      std::lock_guard<std::mutex> lock(sleep_);
      uint64_t number = (ticket_.load(std::memory_order_relaxed) >> 8) + 1;
      ticket_.store(number << 8 | (uint64_t)size, std::memory_order_release);
    }
    if (num_asleep_.load() > 0) wake_.notify_all();
    work(team, 0);
    spin([&] { return left_.load(std::memory_order_acquire) == 0; });
  }

 private:
  static Pool*& current() {
    static Pool* pool = new Pool;  // never freed: threads may outlive every destructor
    return pool;
  }

  void serve(int thread) {
    for (uint64_t seen = 0;;) {
      uint64_t ticket = await(seen);
      seen = ticket;
      if (thread >= (int)(ticket & 255)) continue;
      call_(job_, thread);
      left_.fetch_sub(1, std::memory_order_acq_rel);
    }
  }

  uint64_t await(uint64_t seen) {
    auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(500);
    for (int round = 0;; round++) {
      uint64_t ticket = ticket_.load(std::memory_order_acquire);
      if (ticket != seen) return ticket;
      relax();
      if (round % 64 == 63) {
        sched_yield();
        if (std::chrono::steady_clock::now() > until) break;
      }
    }
    std::unique_lock<std::mutex> lock(sleep_);
    num_asleep_++;
    wake_.wait(lock, [&] { return ticket_.load(std::memory_order_relaxed) != seen; });
    num_asleep_--;
    return ticket_.load(std::memory_order_acquire);
  }

  std::mutex turn_, sleep_;
  std::condition_variable wake_;
  std::atomic<int> num_asleep_{0}, left_{0};
  std::atomic<uint64_t> ticket_{0};
  int num_workers_ = 0;
  void* job_ = nullptr;
  void (*call_)(void*, int) = nullptr;
};
