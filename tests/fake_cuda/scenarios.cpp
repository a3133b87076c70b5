// What prismdbg/rank/native/device does on a device that the test lets go on: each scenario is a function of the module
// `device_scenarios`, and fails with RuntimeError. Waits have bounds.
#include <Python.h>
#include <dlfcn.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "device/pinned_memory.h"
#include "device/watch.h"

extern "C" {
void fake_run(int device, void* stream);
void fake_put(int device, void* stream, int* counter);
void fake_fail(bool of_events, bool of_launches);
void fake_refuse_host_memory(bool refuses);
void fake_hold_host_memory(bool holds);
int fake_making();
uint64_t fake_host_allocations();
int cuCtxPushCurrent_v2(void* context);
int cuCtxPopCurrent_v2(void** context);
int fake_contexts();
}

using namespace prismdbg;
using namespace std::chrono_literals;

namespace {

void expect(bool is_so, const std::string& what) {
  if (!is_so) {
    throw std::runtime_error(what);
  }
}

void wait_for(const std::function<bool()>& is_so, const std::string& what) {
  const auto end = std::chrono::steady_clock::now() + 20s;
  while (!is_so()) {
    expect(std::chrono::steady_clock::now() < end, "waited in vain: " + what);
    std::this_thread::yield();
  }
}

CuHandle stream(intptr_t number) { return reinterpret_cast<CuHandle>(number); }

DeviceTensors tensors(CuHandle stream, const std::vector<Span>& spans = {}, int device = 0) {
  return {.device = device, .stream = stream, .spans = spans};
}

struct Told {
  std::atomic<int> done{0};
  std::atomic<int> failed{0};
  std::function<void(DeviceWatch::DoneNs)> then() {
    return [this](DeviceWatch::DoneNs at) { ++(at ? done : failed); };
  }
};

// Sums, lengths and NaN as the host finds them, also of tensors without bytes and of integers.
void finds_what_the_host_finds() {
  auto& watch = *new DeviceWatch();  // its thread runs until the process ends
  for (const size_t floats : {0, 1, 7, 8192, 8193, 100'000}) {
    for (const bool has_nan : {false, true}) {
      std::vector<float> data(floats + 1, 1.5F);
      data[floats / 2] = has_nan ? NAN : 2.5F;
      const std::vector<Span> spans = {{data.data(), floats * sizeof(float), Numbers::float32},
                                       {nullptr, 0, Numbers::float32},
                                       {data.data(), 3, Numbers::exact}};
      const auto look = watch.look(tensors(stream(1), spans), {.fingerprint = true, .nonfinite = true, .copies = true});
      expect(look != nullptr, "no look");
      fake_run(0, stream(1));
      expect(look->is_done(), "it is not done");
      Fingerprint host(true, true);
      for (const Span& span : spans) {
        host.add(span);
      }
      expect(look->found().value() == host.value(), "another fingerprint");
      expect(look->found().nonfinite() == host.nonfinite(), "another finding of NaN");
      expect(look->copies().size() == 3, "another number of copies");
      expect(floats == 0 || std::memcmp(look->copies()[0].data, data.data(), floats * sizeof(float)) == 0, "another copy");
    }
  }
  for (const Numbers numbers : {Numbers::exact, Numbers::float8_e5m2, Numbers::float8_e4m3fn, Numbers::float8_e8m0fnu,
                                Numbers::float16, Numbers::bfloat16, Numbers::float32, Numbers::float64}) {
    for (uint32_t bits = 0; bits < (1 << 16); bits += 7) {  // of exponents that are all set, and of those that are not
      const uint16_t words[] = {0, 0, 0, static_cast<uint16_t>(bits), 1, 1, 1, 1};
      const Span span{words, sizeof words, numbers};
      const auto look = watch.look(tensors(stream(1), {span}), {.nonfinite = true});
      fake_run(0, stream(1));
      Fingerprint host(false, true);
      host.add(span);
      expect(look->found().nonfinite() == host.nonfinite(), "another finding for the bits " + std::to_string(bits));
    }
  }
  expect(fake_contexts() == 0, "a context stayed");
}

// Nothing of a stream is told before what is ahead of it there; other streams, also of that call, do not wait.
void streams_do_not_hold_each_other() {
  auto& watch = *new DeviceWatch();  // its thread runs until the process ends
  Told first, behind, beside;
  const auto sent = watch.look(tensors(stream(1)), {});
  const auto received = watch.look(tensors(stream(2)), {});
  watch.follow({sent, received}, first.then());
  watch.follow({watch.look(tensors(stream(2)), {})}, behind.then());
  watch.follow({watch.look(tensors(stream(1)), {})}, beside.then());
  watch.follow({watch.look(tensors(stream(2), {}, 1), {}), watch.look(tensors(stream(3)), {})}, beside.then());
  fake_run(0, stream(1));
  fake_run(0, stream(3));
  fake_run(1, stream(2));
  wait_for([&] { return beside.done == 2; }, "what is beside it on the first stream, and on another device's second");
  expect(first.done == 0 && behind.done == 0, "told too early");
  fake_run(0, stream(2));
  wait_for([&] { return first.done == 1 && behind.done == 1; }, "the rest");
  expect(watch.drain(), "something is left");
}

// Who waits on another stream later comes behind the look.
void a_later_waiter_is_held_back() {
  auto& watch = *new DeviceWatch();  // its thread runs until the process ends
  float data[4] = {};
  int overwritten = 0;
  const auto look = watch.look(tensors(stream(1), {{data, sizeof data, Numbers::float32}}), {.nonfinite = true});
  look->hold_back(stream(2));
  fake_put(0, stream(2), &overwritten);
  fake_run(0, stream(2));
  expect(overwritten == 0, "the second stream went on");
  fake_run(0, stream(1));
  fake_run(0, stream(2));
  expect(overwritten == 1, "the second stream is stuck");
}

// Of a device that has failed nothing is told but that; and it is not asked again.
void a_failed_device_is_told_as_unknown() {
  auto& watch = *new DeviceWatch();  // its thread runs until the process ends
  Told told;
  watch.follow({watch.look(tensors(stream(1)), {})}, told.then());
  fake_fail(true, false);
  wait_for([&] { return told.failed == 1; }, "the failure");
  expect(told.done == 0 && watch.drain(), "it was told as done");
  float data[4] = {};
  fake_fail(false, true);
  const DeviceTensors some = tensors(stream(2), {{data, sizeof data, Numbers::float32}});
  expect(watch.look(some, {.fingerprint = true}) == nullptr, "a refused launch gave a look");
  fake_fail(false, false);
  expect(watch.look(some, {.fingerprint = true}) == nullptr && !watch.is_usable(0), "it was asked again");
  expect(watch.is_usable(1), "another device is lost, too");
  fake_run(0, stream(1));
  fake_run(0, stream(2));
}

// Copies have bounded room, which is used again; what never fits does not wait, what might waits for a bounded time.
void room_is_bounded_and_used_again() {
  auto& watch = *new DeviceWatch();  // its thread runs until the process ends
  const size_t quarter = size_t{128} << 20;
  std::vector<char> data(quarter);
  const auto copy_of = [&](CuHandle on, size_t times, bool waits = true) {
    return watch.look(tensors(on, std::vector<Span>(times, {data.data(), quarter, Numbers::exact})),
                      {.copies = true, .waits_for_room = waits});
  };
  const auto began = std::chrono::steady_clock::now();
  expect(copy_of(stream(1), 5) == nullptr, "more than there is room for");
  expect(std::chrono::steady_clock::now() - began < 400ms, "what never fits was waited for");
  auto all = copy_of(stream(1), 4);
  expect(all != nullptr, "there is room for four");
  const auto full = std::chrono::steady_clock::now();
  expect(copy_of(stream(2), 2) == nullptr, "there is no room");
  expect(std::chrono::steady_clock::now() - full < 5s, "it waited for each buffer anew");
  const auto polled = std::chrono::steady_clock::now();
  expect(copy_of(stream(2), 1, false) == nullptr, "there is no room for a poll");
  expect(std::chrono::steady_clock::now() - polled < 400ms, "a poll waited for room");
  fake_run(0, stream(1));
  all.reset();
  const uint64_t made = fake_host_allocations();
  std::vector<char> small(1000);
  for (int i = 0; i < 10; ++i) {
    const auto again = watch.look(tensors(stream(1), {{small.data(), small.size(), Numbers::exact}}), {.copies = true});
    expect(again != nullptr, "a small copy has no room beside large ones that are free");
    fake_run(0, stream(1));
  }
  expect(fake_host_allocations() == made, "buffers are not used again");
}

// The device is held: who has waited for room in vain does not wait again before a buffer has come back.
void no_room_is_waited_for_once() {
  auto& watch = *new DeviceWatch();  // its thread runs until the process ends
  std::vector<char> data(size_t{25} << 20);
  const auto copied = [&](std::chrono::milliseconds least, std::chrono::milliseconds most) {
    const auto began = std::chrono::steady_clock::now();
    auto look = watch.look(tensors(stream(1), {{data.data(), data.size(), Numbers::exact}}), {.copies = true});
    const auto took = std::chrono::steady_clock::now() - began;
    expect(took >= least && took < most, "another wait: " + std::to_string(took / 1ms) + " ms");
    return look;
  };
  Looks all;
  for (int i = 0; i < 16; ++i) {
    all.push_back(copied(0ms, 20s));
    expect(all.back() != nullptr, "no room at the begin");
  }
  expect(copied(400ms, 20s) == nullptr, "there is no room");
  const Span some{data.data(), data.size() / 2, Numbers::exact};
  for (int i = 0; i < 3; ++i) {
    expect(copied(0ms, 400ms) == nullptr, "there is no room still");
    expect(watch.look(tensors(stream(1), {some, some}), {.copies = true}) == nullptr, "nor for parts");
  }
  fake_run(0, stream(1));
  all.pop_back();
  all.push_back(copied(0ms, 400ms));
  expect(all.back() != nullptr, "what came back is not used");
  expect(copied(400ms, 20s) == nullptr, "there is room again");
  fake_run(0, stream(1));
}

// Buffers that are too small have taken all the room, and are free: nobody waits for a larger one, which never comes,
// also if the driver has refused one of that size before.
void what_never_comes_is_not_waited_for() {
  auto& watch = *new DeviceWatch();  // its thread runs until the process ends
  std::vector<char> data(size_t{50} << 20);
  const auto copied = [&](size_t size_bytes) {
    return watch.look(tensors(stream(1), {{data.data(), size_bytes, Numbers::exact}}), {.copies = true});
  };
  const auto fill = [&] {
    Looks all;
    for (int i = 0; i < 16; ++i) {
      all.push_back(copied(data.size() / 2));
      expect(all.back() != nullptr, "no room");
    }
    return all;
  };
  expect(watch.is_usable(0), "there is no device");  // it has its own memory of the host
  fake_refuse_host_memory(true);
  expect(copied(data.size()) == nullptr, "the driver has refused it");
  fake_refuse_host_memory(false);
  {
    const Looks all = fill();
    fake_run(0, stream(1));
  }
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < 4; ++i) {
    expect(copied(data.size()) == nullptr, "there is room");
  }
  expect(std::chrono::steady_clock::now() - began < 400ms, "what never comes was waited for");
  const Looks all = fill();
  expect(copied(data.size()) == nullptr, "there is room beside all");
  const auto full = std::chrono::steady_clock::now();
  expect(copied(data.size() / 2) == nullptr, "there is room for one more");
  expect(std::chrono::steady_clock::now() - full >= 400ms, "what may come was not waited for");
  fake_run(0, stream(1));
}

// The driver takes long to make a buffer of all the room. Who wants it, too, waits until it is given back or refused.
void a_buffer_in_the_making_is_waited_for() {
  for (const bool is_refused : {false, true}) {
    PinnedMemory memory;
    const auto take = [&](std::chrono::milliseconds patience) {
      cuCtxPushCurrent_v2(stream(1));
      const auto taken = memory.take(size_t{512} << 20, std::chrono::steady_clock::now() + patience);
      cuCtxPopCurrent_v2(nullptr);
      return taken;
    };
    std::optional<PinnedBuffer> first, second;
    std::atomic<bool> is_waiting{false};
    fake_hold_host_memory(true);
    fake_refuse_host_memory(is_refused);
    std::thread maker([&] { first = take(60s); });
    wait_for([] { return fake_making() == 1; }, "the driver makes it");
    const auto began = std::chrono::steady_clock::now();
    const bool is_early = take(500ms) || std::chrono::steady_clock::now() - began < 400ms;
    std::thread waiter([&] {
      is_waiting = true;
      second = take(60s);
    });
    wait_for([&] { return is_waiting.load(); }, "a thread's begin");
    fake_hold_host_memory(false);
    maker.join();
    fake_refuse_host_memory(false);
    if (first) {
      memory.give_back(*first);
    }
    waiter.join();
    expect(!is_early, "it was not waited for");
    expect(first.has_value() != is_refused, "the driver is another");
    expect(second || is_refused, "what was given back is not used");
    expect(std::chrono::steady_clock::now() - began < 30s, "nobody was told");
  }
}

// Two threads with Python's lock want room, while it is full: neither holds the other.
void threads_with_pythons_lock_go_on() {
  auto& watch = *new DeviceWatch();  // its thread runs until the process ends
  const size_t most = size_t{512} << 20;
  std::vector<char> data(most);
  auto all = watch.look(tensors(stream(1), {{data.data(), most, Numbers::exact}}), {.copies = true});
  expect(all != nullptr, "no room at the begin");
  std::atomic<int> ended{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      const PyGILState_STATE held = PyGILState_Ensure();
      for (int i = 0; i < 4; ++i) {
        watch.look(tensors(stream(2), {{data.data(), 1000, Numbers::exact}}), {.copies = true});
      }
      PyGILState_Release(held);
      ++ended;
    });
  }
  PyThreadState* released = PyEval_SaveThread();
  try {
    wait_for([&] { return ended == 4; }, "threads that wait for room");
  } catch (...) {
    std::abort();  // they would hold the process for ever
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  PyEval_RestoreThread(released);
  fake_run(0, stream(1));
  fake_run(0, stream(2));
}

// At the end of the program a device that has not come to the end is waited for 5 s, and then left alone.
void the_end_is_bounded() {
  auto& watch = *new DeviceWatch();  // its thread runs until the process ends
  Told told;
  watch.follow({watch.look(tensors(stream(1)), {})}, told.then());
  const auto began = std::chrono::steady_clock::now();
  expect(!watch.drain(), "it was not done");
  const auto took = std::chrono::steady_clock::now() - began;
  expect(took >= 4s && took < 15s, "the bound is another");
  watch.stop();
  fake_run(0, stream(1));
  expect(watch.drain() && watch.look(tensors(stream(1)), {}) == nullptr, "it goes on after the end");
  watch.follow({}, told.then());
  expect(watch.drain(), "it follows after the end");
  expect(told.done == 0 && told.failed == 0, "something was told after the end");
}

template <void (*scenario)()>
PyObject* run(PyObject*, PyObject*) {
  try {
    scenario();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"finds_what_the_host_finds", run<finds_what_the_host_finds>, METH_NOARGS, ""},
    {"streams_do_not_hold_each_other", run<streams_do_not_hold_each_other>, METH_NOARGS, ""},
    {"a_later_waiter_is_held_back", run<a_later_waiter_is_held_back>, METH_NOARGS, ""},
    {"a_failed_device_is_told_as_unknown", run<a_failed_device_is_told_as_unknown>, METH_NOARGS, ""},
    {"room_is_bounded_and_used_again", run<room_is_bounded_and_used_again>, METH_NOARGS, ""},
    {"no_room_is_waited_for_once", run<no_room_is_waited_for_once>, METH_NOARGS, ""},
    {"what_never_comes_is_not_waited_for", run<what_never_comes_is_not_waited_for>, METH_NOARGS, ""},
    {"a_buffer_in_the_making_is_waited_for", run<a_buffer_in_the_making_is_waited_for>, METH_NOARGS, ""},
    {"threads_with_pythons_lock_go_on", run<threads_with_pythons_lock_go_on>, METH_NOARGS, ""},
    {"the_end_is_bounded", run<the_end_is_bounded>, METH_NOARGS, ""},
    {nullptr, nullptr, 0, nullptr},
};
PyModuleDef module = {PyModuleDef_HEAD_INIT, "device_scenarios", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit_device_scenarios() { return PyModule_Create(&module); }
