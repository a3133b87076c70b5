// The Work the program gets: the backend's own, with its completion recorded before anybody can see it.
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <memory>
#include <mutex>

#include "c10d/pending_collective.h"

namespace prismdbg {

class RecordingWork : public c10d::Work {
 public:
  RecordingWork(c10::intrusive_ptr<c10d::Work> inner, std::shared_ptr<PendingCollective> pending);
  ~RecordingWork() override;

  bool wait(std::chrono::milliseconds timeout) override;
  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override;
  void synchronize() override;
  void blockCurrentStream() override;
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
  float getDuration() const override;
  uint64_t getSequencenumber() const override;

 private:
  bool wait_recorded(std::chrono::milliseconds timeout);
  void follow_future();
  int32_t source() const;

  c10::intrusive_ptr<c10d::Work> inner_;
  std::shared_ptr<PendingCollective> pending_;
  c10::intrusive_ptr<c10::ivalue::Future> inner_future_;  // null where the backend's work has none
  std::mutex future_mutex_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace prismdbg
