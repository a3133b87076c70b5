// A backend that gives a Work where NCCL does: none for a call that is not asynchronous, none for one of several that
// are issued together, and one for all of these. The test completes every Work.
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/utils/pybind.h>

#include <atomic>

namespace {

std::atomic<bool> is_complete{false};
std::atomic<bool> end_raises{false};

class FakeWork : public c10d::Work {
 public:
  explicit FakeWork(c10d::OpType type) : Work(-1, type) {}
  bool wait(std::chrono::milliseconds) override { return true; }
  bool isCompleted() override { return is_complete; }
  bool isSuccess() const override { return is_complete; }
};

using Given = c10::intrusive_ptr<c10d::Work>;

Given given(bool is_work, c10d::OpType type) { return is_work ? Given(c10::make_intrusive<FakeWork>(type)) : Given(); }

class FakeNccl : public c10d::Backend {
 public:
  using Backend::Backend;
  const std::string getBackendName() const override { return "nccl"; }
  bool supportsCoalescing() const override { return true; }

  Given allreduce(std::vector<at::Tensor>&, const c10d::AllreduceOptions& options) override {
    is_async_ = options.asyncOp;
    return given(options.asyncOp, c10d::OpType::ALLREDUCE);
  }
  Given send(std::vector<at::Tensor>&, int, int) override { return message(c10d::OpType::SEND); }
  Given recv(std::vector<at::Tensor>&, int, int) override { return message(c10d::OpType::RECV); }

  void startCoalescing() override { is_together_ = true; }
  Given endCoalescing() override {
    is_together_ = false;
    TORCH_CHECK(!end_raises, "the peer is gone");
    return given(is_async_, c10d::OpType::COALESCED);
  }

 private:
  Given message(c10d::OpType type) {
    is_async_ = true;
    return given(!is_together_, type);
  }

  bool is_together_ = false;
  bool is_async_ = false;
};

}  // namespace

PYBIND11_MODULE(fake_nccl, m) {
  m.def("make", [](int rank, int size) -> c10::intrusive_ptr<c10d::Backend> {
    return c10::make_intrusive<FakeNccl>(rank, size);
  });
  m.def("complete", [] { is_complete = true; });
  m.def("fail_the_end", [] { end_raises = true; });
}
