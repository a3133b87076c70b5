#include "c10d/coalescing.h"

#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "c10d/recording_work.h"
#include "log/clock.h"
#include "process/gil.h"
#include "process/guarded.h"
#include "recorder/json.h"
#include "recorder/state.h"

namespace prismdbg {
namespace {

using Together = std::vector<std::shared_ptr<PendingCollective>>;

struct Open {
  std::string group;
  Together calls;
  Together nested;  // of groups that ended inside this one
};

thread_local std::vector<Open> open_groups;  // the innermost last

void move_to(Together& target, Together& calls) {
  target.insert(target.end(), std::make_move_iterator(calls.begin()), std::make_move_iterator(calls.end()));
}

void give_up(Open& left) {
  move_to(left.nested, left.calls);
  if (left.nested.empty()) {
    return;
  }
  guarded(
      [&] {
        const WithoutGil released;
        const std::string text = "a coalescing block of group " + left.group +
                                 " was never ended, perhaps because of an exception: the ends of its calls (" +
                                 std::to_string(left.nested.size()) + ") are unknown";
        state().recorder.append(Kind::note, "{\"kind\": \"not_ended\", \"time_ns\": " + std::to_string(monotonic_ns()) +
                                                ", \"text\": " + json_string(text) + "}");
      },
      [](const char* why) { state().recorder.lose("events", why); });
  for (const auto& call : left.nested) {
    call->abandon();
  }
}

std::vector<Open>::iterator find_open(const std::string& group) {
  return std::find_if(open_groups.begin(), open_groups.end(), [&](const Open& each) { return each.group == group; });
}

void give_up_from(std::vector<Open>::iterator first) {
  std::vector<Open> left(std::make_move_iterator(first), std::make_move_iterator(open_groups.end()));
  open_groups.erase(first, open_groups.end());
  std::for_each(left.rbegin(), left.rend(), give_up);
}

// The group's calls, innermost first, and whether it has any of its own; what is still open inside it is given up.
Open take_ended(const std::string& group) {
  const auto found = find_open(group);
  if (found == open_groups.end()) {
    return {};
  }
  give_up_from(std::next(found));
  Open taken = std::move(open_groups.back());
  open_groups.pop_back();
  return taken;
}

void fail_all(const Together& calls, const std::exception_ptr& error) {
  for (const auto& call : calls) {
    call->fail(error, true);
  }
}

// Issued, and nobody has a Work of them: where the group has calls of its own, the calling thread's stream is behind all.
void end_without_work(const Open& ended) {
  for (const auto& call : ended.calls) {
    call->finish(Status::ok);
  }
  for (const auto& call : ended.nested) {
    if (!ended.calls.empty() || call->is_sync()) {
      call->finish(Status::ok);
    } else {
      call->abandon();
    }
  }
}

}  // namespace

void start_coalescing(const GroupPtr& group) {
  guarded(
      [&] {
        const std::string name = group->getGroupName();
        if (const auto left = find_open(name); left != open_groups.end()) {
          give_up_from(left);
        }
        open_groups.push_back({name, {}, {}});
      },
      [](const char* why) { state().recorder.lose("events", why); });
}

bool join_coalesced(const std::shared_ptr<PendingCollective>& pending) {
  if (!open_groups.empty()) {
    open_groups.back().calls.push_back(pending);
  }
  return !open_groups.empty();
}

c10::intrusive_ptr<c10d::Work> end_coalescing(const GroupPtr& group, const py::function& end) {
  Open ended;
  guarded([&] { ended = take_ended(group->getGroupName()); }, [](const char* why) { state().recorder.lose("events", why); });
  c10::intrusive_ptr<c10d::Work> inner;
  try {
    inner = end().cast<c10::intrusive_ptr<c10d::Work>>();
  } catch (...) {
    fail_all(ended.nested, std::current_exception());
    fail_all(ended.calls, std::current_exception());
    throw;
  }
  if (!open_groups.empty()) {  // they are not issued yet, whatever the Work says
    move_to(open_groups.back().nested, ended.nested);
    move_to(open_groups.back().nested, ended.calls);
    return inner;
  }
  if (!inner) {
    end_without_work(ended);
    return inner;
  }
  move_to(ended.nested, ended.calls);
  if (ended.nested.empty()) {
    return inner;
  }
  const auto last = ended.nested.back();
  ended.nested.pop_back();
  last->lead(std::move(ended.nested));
  return c10::make_intrusive<RecordingWork>(std::move(inner), last);
}

}  // namespace prismdbg
