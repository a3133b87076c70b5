// A backend that gives a Work where NCCL does: none for a call that is not asynchronous, none for one of several that
// are issued together unless it is asynchronous, and one for all of these. As newer Works of NCCL, it does not answer
// isSuccess, and a Work's future is complete from the first. The test completes every Work.
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/utils/pybind.h>

#include <atomic>

namespace {

std::atomic<bool> is_complete{false};
std::atomic<bool> end_raises{false};
std::atomic<bool> wait_raises{false};

class FakeWork : public c10d::Work {
 public:
  explicit FakeWork(c10d::OpType type) : Work(-1, type) {}
  bool wait(std::chrono::milliseconds) override {
    TORCH_CHECK(!wait_raises, "the peer is gone");
    return true;
  }
  void synchronize() override {}
  bool isCompleted() override { return is_complete; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    future->markCompleted(c10::List<at::Tensor>());
    return future;
  }
  // Its failures are marked at once, its successes by a thread some time later.
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override {
    return c10::make_intrusive<c10::ivalue::Future>(c10::AnyEnumType::get());
  }
  bool isSuccess() const override { TORCH_CHECK_NOT_IMPLEMENTED(false, "isSuccess() is not implemented"); }
};

using Given = c10::intrusive_ptr<c10d::Work>;

Given given(bool is_work, c10d::OpType type) { return is_work ? Given(c10::make_intrusive<FakeWork>(type)) : Given(); }

class FakeNccl : public c10d::Backend {
 public:
  using Backend::Backend;
  const std::string getBackendName() const override { return "nccl"; }
  bool supportsCoalescing() const override { return true; }

  Given allreduce(std::vector<at::Tensor>&, const c10d::AllreduceOptions& options) override {
    return collective(options.asyncOp, c10d::OpType::ALLREDUCE);
  }
  Given allreduce_coalesced(std::vector<at::Tensor>&, const c10d::AllreduceCoalescedOptions& options) override {
    return collective(options.asyncOp, c10d::OpType::COALESCED);
  }
  Given barrier(const c10d::BarrierOptions&) override { return given(true, c10d::OpType::BARRIER); }
  Given send(std::vector<at::Tensor>&, int, int) override { return message(c10d::OpType::SEND); }
  Given recv(std::vector<at::Tensor>&, int, int) override { return message(c10d::OpType::RECV); }
  Given recvAnysource(std::vector<at::Tensor>&, int) override { return message(c10d::OpType::RECVANYSOURCE); }

  void startCoalescing() override {
    is_together_ = true;
    is_used_ = false;
  }
  Given endCoalescing() override {
    is_together_ = false;
    TORCH_CHECK(!end_raises, "the peer is gone");
    return given(is_used_ && is_async_, c10d::OpType::COALESCED);
  }

 private:
  Given collective(bool is_async, c10d::OpType type) {
    is_used_ = true;
    is_async_ = is_async;
    return given(is_async, type);
  }
  Given message(c10d::OpType type) {
    is_used_ = is_async_ = true;
    return given(!is_together_, type);
  }

  bool is_together_ = false;
  bool is_used_ = false;
  bool is_async_ = false;
};

}  // namespace

PYBIND11_MODULE(fake_nccl, m) {
  m.def("make", [](int rank, int size) -> c10::intrusive_ptr<c10d::Backend> {
    return c10::make_intrusive<FakeNccl>(rank, size);
  });
  m.def("complete", [] { is_complete = true; });
  m.def("fail_the_end", [] { end_raises = true; });
  m.def("fail_the_wait", [] { wait_raises = true; });
}
