// The scheduler of the SIMT checker (see runtime.h). Never compiled with a sanitizer itself: it tells the sanitizer
// what happens before what, as the GPU's memory model has it, and nothing more. A barrier orders the block; a wave
// operation orders nothing; blocks of one launch are concurrent; a launch ends before the next begins.
#include "runtime.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <algorithm>
#include <random>
#include <vector>

#include "box_units.h"
#include "fiber.h"

eq_simt_position *eq_simt_item;

namespace {

constexpr size_t kStack = 256 << 10;  // AddressSanitizer frames are large; untouched pages cost nothing
constexpr int kMaxWave = 64;
constexpr unsigned char kPoison = 0xff;  // NaN in every float type: uninitialised LDS shows in results

enum class State { ready, at_barrier, in_wave, at_meeting, finished };

struct Fiber {
  eq_simt_position position;
  State state;
  int site, wave;
  unsigned generation;  // of the wave operation it waits for
  unsigned long long operation;
  const uint64_t *meeting;  // that it waits for, to leave the phase of this parity
  unsigned parity;
  void *stack_pointer, *tsan;
  char *stack;
};

struct Wave {
  int lanes, arrived, site;
  unsigned generation;
  unsigned long long operation;
  char slots[2][kMaxWave * EQ_SIMT_SLOT];  // two: a slow lane still reads one operation while the next begins
};

char error[512];

bool fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
bool fail(const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(error, sizeof error, format, args);
  va_end(args);
  return false;
}

// memcpy would go through the sanitizer's interceptor and be taken for an access by the kernel.
void copy_unseen(void *to, const void *from, size_t size) {
  for (size_t i = 0; i < size; ++i) ((volatile char *)to)[i] = ((const volatile char *)from)[i];
}

void acquire(void *tag) {
  if (__tsan_acquire) __tsan_acquire(tag);
}
void release(void *tag) {
  if (__tsan_release) __tsan_release(tag);
}

class Launch {
 public:
  Launch(void (*body)(void *), void *argument, int threads, int wave, unsigned order)
      : body_(body), argument_(argument), threads_(threads), wave_(wave), order_(order), random_(order),
        fibers_(threads), waves_((threads + wave - 1) / wave) {
    if (__tsan_get_current_fiber) tsan_ = __tsan_get_current_fiber();
  }
  ~Launch() {
    drop_stacks();
    for (void *memory : graveyard_) free(memory);
  }

  bool run(int blocks) {
    std::vector<int> sequence = ordered(blocks);
    barrier_tags_.resize(2 * blocks);
    for (int block : sequence)
      if (!run_block(block)) return false;
    acquire(&end_tag_);
    return true;
  }

  // Called from fibers.
  void start() {
    Fiber &me = *current_;
    if (__sanitizer_finish_switch_fiber) __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
    body_(argument_);
    me.state = State::finished;
    release(&end_tag_);
    suspend(me);
    abort();
  }
  void barrier(int site) {
    Fiber &me = *current_;
    me.state = State::at_barrier;
    me.site = site;
    ++waiting_;
    // One tag for all barriers would hide races across two of them, and those of other blocks.
    char *tag = &barrier_tags_[2 * me.position.block + (barriers_ & 1)];
    release(tag);
    suspend(me);
    acquire(tag);
  }
  const char *exchange(const void *mine, int size, int site) {
    Fiber &me = *current_;
    Wave &wave = waves_[me.wave];
    char *slots = wave.slots[wave.generation & 1];
    copy_unseen(slots + EQ_SIMT_SLOT * me.position.lane, mine, size);
    if (wave.arrived == 0) {
      wave.site = site;
      wave.operation = ++operations_;
    }
    me.operation = wave.operation;
    if (wave.site != site) meeting_[0] = wave.site, meeting_[1] = site;
    me.site = site;
    if (++wave.arrived == wave.lanes) {
      wave.arrived = 0;
      ++wave.generation;
    } else {
      me.state = State::in_wave;
      me.generation = wave.generation;
      suspend(me);
    }
    return slots;
  }
  unsigned long long operation() const { return current_->operation; }
  void *shared(int id, size_t size) {
    LocalMemory *found = local_.of(id);
    if (found == nullptr) {
      found = local_.add(id, size, kPoison);
      release(&found->id);
    }
    acquire(&found->id);
    return found->memory;
  }

  void refuse(const char *what, int site) {
    if (!refused_) fail("block %d: line %d: %s", current_->position.block, site, what);
    refused_ = true;
    suspend(*current_);
    abort();
  }
  unsigned place(const void *p, int site) {
    const unsigned found = local_.place(p);
    if (!found) refuse("an address that is not in local memory", site);
    return found;
  }
  void async_fence() { local_.fence(); }
  void wgmma_fence() { mine().fenced = true; }
  void wgmma(float *sums, int columns, const eq_simt_operands &operands, int site) {
    Asynchronous &me = mine();
    if (!me.fenced) refuse("a wgmma on sums that were used since the last wgmma.fence", site);
    if (me.issued - me.first == me.most) refuse("more wgmma in flight than the checker holds", site);
    WarpgroupProduct &product = me.products[me.issued % me.most];
    product = WarpgroupProduct{sums, columns, operands, me.commits, site, 0};
    Elements elements(product, current_->position.thread, local_, nullptr);
    elements.digest_all();
    if (elements.outside)
      refuse("a wgmma reads outside of local memory, or its descriptor has a base offset", site);
    product.read = elements.digest;
    Issued &group = issued_[current_->position.thread / 128];
    const unsigned place = me.issued++ % group.most;
    if (group.number[place] < me.issued) group.operands[place] = operands, group.number[place] = me.issued;
    if (group.number[place] == me.issued && !(group.operands[place] == operands))
      refuse("waves of a warpgroup name different operands", site);
  }
  void wgmma_commit() { ++mine().commits; }
  void wgmma_wait(int pending, void (*read)(const void *)) {
    Asynchronous &me = mine();
    for (; me.first < me.issued; ++me.first) {
      const WarpgroupProduct &next = me.products[me.first % me.most];
      if (next.commit + pending >= me.commits) break;
      Elements elements(next, current_->position.thread, local_, read);
      elements.add_to_sums();
      if (elements.digest != next.read) refuse("operands of a wgmma changed while it ran", next.site);
    }
    me.fenced = false;  // what was waited for may be read
  }

  void map_replace(void *map, int field, int at, unsigned long long value, int site) {
    place(map, site);
    if ((uintptr_t)map % 128) refuse("a tensor map that is not at a multiple of 128 bytes", site);
    TensorMap &entry = *(TensorMap *)map;
    if (entry.known != TensorMap::is_map) {
      for (int i = 0; i < 32; ++i)
        if (((const uint32_t *)map)[i]) refuse("a tensor map that was not cleared", site);
      entry.known = TensorMap::is_map;
    }
    uint32_t *const words[] = {nullptr, nullptr, entry.global_dim, entry.box_dim, entry.element_stride, &entry.rank,
                               &entry.elemtype, &entry.interleave_layout, &entry.swizzle_mode, &entry.fill_mode};
    if (field == eq_simt_global_address)
      entry.global_address = value;
    else if (field == eq_simt_global_stride)
      entry.global_stride[at] = value;
    else
      words[field][at] = (uint32_t)value;
  }
  void map_publish(void *global, const void *map, int site) {
    if ((uintptr_t)global % 128) refuse("a tensor map that is not at a multiple of 128 bytes", site);
    move(global, map, 128);
  }
  void map_acquire(const void *global, int site) {
    TensorMap map;
    move(&map, global, sizeof map);
    if (map.known != TensorMap::is_map) refuse("no tensor map there", site);
    mine().maps[mine().acquired++ % Asynchronous::most_maps] = global;
  }
  void copy_box(void *to, const void *map, int column, int row, unsigned long long *meeting, int site) {
    BoxCopy box{{}, place(to, site), column, row, (uint64_t *)meeting};
    const void *const *const maps = mine().maps;
    if (std::find(maps, maps + Asynchronous::most_maps, map) == maps + Asynchronous::most_maps)
      refuse("a copy by a tensor map that its thread has not acquired", site);
    move(&box.map, map, sizeof box.map);
    if (const char *fault = box.map.fault()) refuse(fault, site);
    if (box.to % 128) refuse("a box that is not at a multiple of 128 bytes", site);
    const unsigned at = place(meeting, site);
    const LocalMemory *const m = local_.holding(at, 8);
    if (m == nullptr || !Meeting::of(*(const uint64_t *)(m->seen + (at - m->place))).valid)
      refuse("a copy by an mbarrier that is not published to asynchronous units", site);
    if (order_ == 1 || (order_ > 1 && random_() % 2)) {
      if (!finish(box)) refuse("a box that does not lie in local memory", site);
    } else {
      if (copying_ == kMostCopies) refuse("more copies under way than the checker holds", site);
      copies_[copying_++] = box;
    }
  }
  void meeting_begin(unsigned long long *meeting, int arrivals, int site) {
    place(meeting, site);
    if (arrivals < 1 || arrivals > (int)Meeting::most) refuse("an mbarrier of no such number of arrivals", site);
    *meeting = Meeting{0, (unsigned)arrivals, (unsigned)arrivals, 0, true}.bits();
  }
  void meeting_arrive(unsigned long long *meeting, int bytes, int site) {
    Meeting now = met(meeting, site);
    if (now.pending == 0) refuse("more arrivals than an mbarrier expects", site);
    release((char *)meeting + now.phase);
    now.bytes += bytes;
    --now.pending;
    now.turn();
    *meeting = now.bits();
  }
  void meeting_wait(unsigned long long *meeting, int parity, int site) {
    Fiber &me = *current_;
    if (met(meeting, site).phase == (unsigned)parity) {
      me.state = State::at_meeting;
      me.site = site;
      me.meeting = (const uint64_t *)meeting;
      me.parity = parity;
      suspend(me);
    }
    acquire((char *)meeting + parity);
  }

 private:
  std::vector<int> ordered(int n) {
    std::vector<int> sequence(n);
    for (int i = 0; i < n; ++i) sequence[i] = order_ == 1 ? n - 1 - i : i;
    if (order_ > 1) std::shuffle(sequence.begin(), sequence.end(), random_);
    return sequence;
  }

  bool run_block(int block) {
    prepare(block);
    std::vector<int> sequence = ordered(threads_);
    bool good = true;
    for (finished_ = 0; good && finished_ < threads_;) {
      if (order_ > 1) std::shuffle(sequence.begin(), sequence.end(), random_);
      // A wave that rests now and then lets others run ahead of it.
      const int resting = order_ > 1 ? (int)(random_() % waves_.size()) : -1;
      const bool progress = round(sequence, resting) || (resting >= 0 && round(sequence, -1));
      if (refused_)
        good = false;
      else if (meeting_[1])
        good = fail("block %d: lanes of one wave meet in different wave operations, lines %d and %d", block,
                    meeting_[0], meeting_[1]);
      else if (waiting_ == threads_)
        good = open_barrier(block);
      else if (!progress && finished_ < threads_)
        good = finish_awaited(block) || (error[0] == 0 && deadlock(block));
    }
    if (good && copying_) good = fail("block %d: copies are under way when the block ends", block);
    for (Fiber &fiber : fibers_)
      if (fiber.tsan) __tsan_destroy_fiber(fiber.tsan);
    for (LocalMemory &m : local_.all())
      for (char *memory : {m.memory, m.seen}) {
        if (tsan_)
          graveyard_.push_back(memory);  // freed memory would be reused, and looked at as if by one block
        else
          free(memory);
      }
    local_.all().clear();
    return good;
  }

  void prepare(int block) {
    if (tsan_) drop_stacks();  // ThreadSanitizer forgets what the old fibers did on theirs
    if (!stacks_) {
      stacks_ = (char *)mmap(nullptr, kStack * threads_, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (stacks_ == (char *)MAP_FAILED) {
        perror("eqsat simt: no memory for stacks");
        abort();
      }
    }
    waiting_ = 0;
    copying_ = 0;
    asynchronous_.assign(threads_, Asynchronous{});
    issued_.assign((threads_ + 127) / 128, Issued{});
    for (Wave &wave : waves_) wave.lanes = wave.arrived = wave.site = 0, wave.generation = 0;
    for (int t = 0; t < threads_; ++t) {
      Fiber &fiber = fibers_[t];
      fiber.position = eq_simt_position{t, block, t % wave_};
      fiber.wave = t / wave_;
      fiber.state = State::ready;
      fiber.site = 0;
      fiber.stack = stacks_ + kStack * t;
      fiber.stack_pointer = eq_simt_fresh_stack(fiber.stack + kStack - 128, entry);
      fiber.tsan = __tsan_create_fiber ? __tsan_create_fiber(0) : nullptr;
      ++waves_[fiber.wave].lanes;
    }
  }

  bool round(const std::vector<int> &sequence, int resting) {
    bool progress = false;
    for (int i : sequence) {
      Fiber &fiber = fibers_[i];
      if (fiber.wave == resting) continue;
      if (fiber.state == State::in_wave && waves_[fiber.wave].generation != fiber.generation) fiber.state = State::ready;
      if (fiber.state == State::at_meeting && passed(fiber)) fiber.state = State::ready;
      if (fiber.state != State::ready) continue;
      progress = true;
      resume(fiber);
      finished_ += fiber.state == State::finished;
    }
    return progress;
  }

  bool open_barrier(int block) {
    const int site = fibers_[0].site;
    for (Fiber &fiber : fibers_) {
      if (fiber.site != site)
        return fail("block %d: threads wait at different barriers, lines %d and %d", block, site, fiber.site);
      fiber.state = State::ready;
    }
    waiting_ = 0;
    ++barriers_;
    return true;
  }

  bool deadlock(int block) const {
    int at_barrier = 0, in_wave = 0, at_meeting = 0, barrier_line = 0, wave_line = 0, meeting_line = 0;
    for (const Fiber &fiber : fibers_) {
      if (fiber.state == State::at_barrier) ++at_barrier, barrier_line = fiber.site;
      if (fiber.state == State::in_wave) ++in_wave, wave_line = fiber.site;
      if (fiber.state == State::at_meeting) ++at_meeting, meeting_line = fiber.site;
    }
    return fail("block %d: deadlock: of %d threads %d wait at a barrier (line %d), %d in a wave operation (line %d), "
                "%d at an mbarrier (line %d), %d have returned", block, threads_, at_barrier, barrier_line, in_wave,
                wave_line, at_meeting, meeting_line, finished_);
  }

  void resume(Fiber &fiber) {
    current_ = &fiber;
    eq_simt_item = &fiber.position;
    if (fiber.tsan) __tsan_switch_to_fiber(fiber.tsan, 1);  // 1: a switch orders nothing
    void *fake_stack = nullptr;
    if (__sanitizer_start_switch_fiber) __sanitizer_start_switch_fiber(&fake_stack, fiber.stack, kStack);
    eq_simt_switch(&stack_pointer_, fiber.stack_pointer);
    if (__sanitizer_finish_switch_fiber) __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
  }
  void suspend(Fiber &fiber) {
    if (tsan_) __tsan_switch_to_fiber(tsan_, 1);
    void *fake_stack = nullptr;
    if (__sanitizer_start_switch_fiber)
      __sanitizer_start_switch_fiber(fiber.state == State::finished ? nullptr : &fake_stack, nullptr, 0);
    eq_simt_switch(&fiber.stack_pointer, stack_pointer_);
    if (__sanitizer_finish_switch_fiber) __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
  }
  Meeting met(const unsigned long long *meeting, int site) {
    place(meeting, site);
    const Meeting now = Meeting::of(*meeting);
    if (!now.valid) refuse("no mbarrier there", site);
    return now;
  }
  bool passed(const Fiber &fiber) const { return Meeting::of(*fiber.meeting).phase != fiber.parity; }
  bool finish(const BoxCopy &box) {
    const auto copy = [&](void *to, const void *from) { move(to, from, 2); };
    if (!write_box(box, local_, copy)) return false;
    Meeting now = Meeting::of(*box.meeting);
    now.bytes -= box.map.box_dim[0] * box.map.box_dim[1] * 2;
    now.turn();
    *box.meeting = now.bits();
    return true;
  }
  // The copies that somebody waits for; false if there are none.
  bool finish_awaited(int block) {
    bool found = false;
    for (const Fiber &fiber : fibers_)
      for (int i = 0; i < copying_ && fiber.state == State::at_meeting && !passed(fiber);) {
        if (copies_[i].meeting != fiber.meeting) {
          ++i;
          continue;
        }
        const BoxCopy box = copies_[i];
        std::copy(copies_ + i + 1, copies_ + copying_--, copies_ + i);
        if (!finish(box)) return fail("block %d: a box that does not lie in local memory", block);
        found = true;
      }
    return found;
  }
  // Bytes of global memory: seen by AddressSanitizer, and not by ThreadSanitizer, which would miss that waves order them.
  void move(void *to, const void *from, size_t size) {
    if (tsan_)
      copy_unseen(to, from, size);
    else
      memcpy(to, from, size);
  }

  static void entry();
  Asynchronous &mine() { return asynchronous_[current_->position.thread]; }

  void drop_stacks() {
    if (stacks_) munmap(stacks_, kStack * threads_);
    stacks_ = nullptr;
  }

  void (*body_)(void *);
  void *argument_;
  int threads_, wave_;
  unsigned order_;
  std::mt19937 random_;
  std::vector<Fiber> fibers_;
  std::vector<Wave> waves_;
  LocalMemories local_;
  std::vector<Asynchronous> asynchronous_;
  std::vector<Issued> issued_;  // by warpgroups
  static constexpr int kMostCopies = 64;
  BoxCopy copies_[kMostCopies];  // under way
  int copying_ = 0;
  std::vector<void *> graveyard_;
  Fiber *current_ = nullptr;
  void *stack_pointer_ = nullptr, *tsan_ = nullptr;
  char *stacks_ = nullptr;
  int waiting_ = 0, finished_ = 0;
  bool refused_ = false;
  int meeting_[2] = {};  // lines of two wave operations that lanes of one wave reached together
  unsigned barriers_ = 0;
  static inline unsigned long long operations_ = 0;  // never restarts: what is kept by number outlives a launch
  std::vector<char> barrier_tags_;  // two for each block
  char end_tag_ = 0;
};

Launch *launch;

void Launch::entry() { launch->start(); }

}  // namespace

int eq_simt_run(void (*body)(void *), void *argument, int blocks, int threads, int wave, unsigned order) {
  error[0] = 0;
  Launch here(body, argument, threads, wave, order);
  launch = &here;
  const bool good = here.run(blocks);
  launch = nullptr;
  eq_simt_item = nullptr;
  return good ? 0 : 1;
}
const char *eq_simt_error() { return error; }
void eq_simt_barrier(int site) { launch->barrier(site); }
const char *eq_simt_exchange(const void *mine, int size, int site) { return launch->exchange(mine, size, site); }
void *eq_simt_shared(int id, size_t size) { return launch->shared(id, size); }
unsigned long long eq_simt_operation() { return launch->operation(); }
void eq_simt_refuse(const char *what, int site) { launch->refuse(what, site); }
unsigned eq_simt_place(const void *p, int site) { return launch->place(p, site); }
void eq_simt_async_fence() { launch->async_fence(); }
void eq_simt_wgmma_fence() { launch->wgmma_fence(); }
void eq_simt_wgmma(float *sums, int columns, const eq_simt_operands *operands, int site) {
  launch->wgmma(sums, columns, *operands, site);
}
void eq_simt_wgmma_commit() { launch->wgmma_commit(); }
void eq_simt_wgmma_wait(int pending, void (*read)(const void *)) { launch->wgmma_wait(pending, read); }
void eq_simt_map_replace(void *map, int field, int at, unsigned long long value, int site) {
  launch->map_replace(map, field, at, value, site);
}
void eq_simt_map_publish(void *global, const void *map, int site) { launch->map_publish(global, map, site); }
void eq_simt_map_acquire(const void *global, int site) { launch->map_acquire(global, site); }
void eq_simt_copy_box(void *to, const void *map, int column, int row, unsigned long long *meeting, int site) {
  launch->copy_box(to, map, column, row, meeting, site);
}
void eq_simt_meeting_begin(unsigned long long *meeting, int arrivals, int site) {
  launch->meeting_begin(meeting, arrivals, site);
}
void eq_simt_meeting_arrive(unsigned long long *meeting, int bytes, int site) {
  launch->meeting_arrive(meeting, bytes, site);
}
void eq_simt_meeting_wait(unsigned long long *meeting, int parity, int site) {
  launch->meeting_wait(meeting, parity, site);
}
