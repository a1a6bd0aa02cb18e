// SPDX-License-Identifier: Apache-2.0
#include "weir/account/op_stats.h"

#include <algorithm>
#include <bit>
#include <optional>

namespace weir {
namespace {

// The counter of an OST for this operation; none if it has none.
std::optional<OpStats::Op> op_of(OperationKind operation) {
  switch (operation) {
    case OperationKind::kRead:
      return OpStats::Op::kRead;
    case OperationKind::kWrite:
      return OpStats::Op::kWrite;
    case OperationKind::kFlush:
      return OpStats::Op::kSync;
    case OperationKind::kDiscard:
    case OperationKind::kZero:
      return OpStats::Op::kPunch;
    default:
      return std::nullopt;
  }
}

}  // namespace

void OpStats::Sum::add(std::uint64_t value) {
  min = samples == 0 ? value : std::min(min, value);
  max = std::max(max, value);
  ++samples;
  sum += value;
  sumsq += value * value;
}

OpStats::Sum& OpStats::Sum::operator+=(const Sum& more) {
  if (more.samples == 0) return *this;
  min = samples == 0 ? more.min : std::min(min, more.min);
  max = std::max(max, more.max);
  samples += more.samples;
  sum += more.sum;
  sumsq += more.sumsq;
  return *this;
}

OpStats::ByteSum& OpStats::ByteSum::operator+=(const ByteSum& more) {
  if (more.samples == 0) return *this;
  Sum::operator+=(more);
  for (std::size_t i = 0; i < kBuckets; ++i) buckets[i] += more.buckets[i];
  return *this;
}

void OpStats::Operations::record(Op op, const RequestRecord& record) {
  if (since == kNever) since = record.ended;
  updated = record.ended;
  const auto ns = static_cast<std::uint64_t>(record.device_time().count());
  usecs[static_cast<std::size_t>(op)].add(ns / 1000);
  if (op == Op::kRead) read_bytes.add(record.moved.count());
  if (op == Op::kWrite) write_bytes.add(record.moved.count());
}

OpStats::Operations& OpStats::Operations::operator+=(const Operations& more) {
  since = std::min(since, more.since);
  updated = std::max(updated, more.updated);
  read_bytes += more.read_bytes;
  write_bytes += more.write_bytes;
  for (std::size_t i = 0; i < kOps; ++i) usecs[i] += more.usecs[i];
  return *this;
}

void OpStats::ByteSum::add(std::uint64_t value) {
  Sum::add(value);
  const auto bucket =
      value <= 1 ? std::size_t{0} : static_cast<std::size_t>(std::bit_width(value - 1));
  ++buckets[std::min(bucket, kBuckets - 1)];
}

void OpStats::record(Handle& handle, const JobId& job, const RequestRecord& record) {
  const std::optional<Op> op = op_of(record.operation);
  if (!op) return;
  if (job.empty()) return apart_.record(*op, record);
  const Instant now = record.ended;
  if (handle.job_ == nullptr || handle.generation_ != generation_ || handle.job_->id != job) {
    handle.job_ = &job_of(job, now);
    handle.generation_ = generation_;
  }
  Job& at = *handle.job_;
  if (by_idle_time_.behind(at) != nullptr) {
    by_idle_time_.erase(at);
    by_idle_time_.push_back(at);
  }
  at.record(*op, record);
}

OpStats::Job& OpStats::job_of(const JobId& id, Instant now) {
  if (const auto found = index_.find(id); found != index_.end()) return *found->second;
  drop_idle(now);
  if (jobs_.size() >= jobs_max_) drop(JobId(by_idle_time_.front().id));
  Job& made = jobs_.emplace_back();
  made.id = id;
  made.since = made.updated = now;
  by_idle_time_.push_back(made);
  index_.emplace(id, std::prev(jobs_.end()));
  return made;
}

void OpStats::drop_idle(Instant now) {
  if (cleanup_ == Nanoseconds{0}) return;
  while (!by_idle_time_.empty() && now - by_idle_time_.front().updated > cleanup_) {
    drop(JobId(by_idle_time_.front().id));
  }
}

const std::list<OpStats::Job>& OpStats::jobs(Instant now) {
  drop_idle(now);
  return jobs_;
}

OpStats::Operations OpStats::total() const {
  Operations total = apart_;
  for (const Job& job : jobs_) total += job;
  return total;
}

void OpStats::clear() {
  ++generation_;
  index_.clear();
  for (Job& job : jobs_) {
    apart_ += job;
    by_idle_time_.erase(job);
  }
  jobs_.clear();
}

bool OpStats::drop(const JobId& job) {
  const auto found = index_.find(job);
  if (found == index_.end()) return false;
  ++generation_;
  by_idle_time_.erase(*found->second);
  apart_ += *found->second;
  jobs_.erase(found->second);
  index_.erase(found);
  return true;
}

}  // namespace weir
