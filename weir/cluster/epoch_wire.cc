// SPDX-License-Identifier: Apache-2.0
#include "weir/cluster/epoch_wire.h"

#include <utility>

#include "weir/cluster/epoch.pb.h"

namespace weir::cluster {

void to_wire(const serve::LeaderStatus& status, DescribeReply& reply) {
  reply.Clear();
  reply.set_term(status.term);
  reply.set_epoch(status.epoch);
  reply.set_rounds(status.rounds);
  reply.set_evictions(status.evictions);
  reply.set_refused(status.refused);
  reply.set_garbage(status.garbage);
  reply.set_round_median_ns(status.round_median.count());
  reply.set_round_p99_ns(status.round_p99.count());
  reply.set_waits_for_reports(status.waits_for_reports);
  reply.set_bundles(status.bundles);
  for (const serve::MemberStatus& one : status.members) {
    DescribeReply::Member& member = *reply.add_members();
    member.set_name(one.name);
    member.set_is_joined(one.is_joined);
    for (const serve::SliceStatus& used : one.slices) {
      DescribeReply::Slice& slice = *member.add_slices();
      slice.set_of(used.of);
      slice.set_milli(used.milli);
      slice.set_is_cut_off(!used.is_leased);
    }
  }
  for (const serve::CourseStatus& one : status.courses) {
    DescribeReply::Course& course = *reply.add_courses();
    course.set_name(one.service);
    course.set_epoch(one.epoch);
    course.set_rounds(one.rounds);
    course.set_evictions(one.evictions);
    course.set_members(one.members);
  }
}

serve::LeaderStatus from_wire(const DescribeReply& reply) {
  serve::LeaderStatus status{.term = reply.term(),
                             .epoch = reply.epoch(),
                             .rounds = reply.rounds(),
                             .evictions = reply.evictions(),
                             .refused = reply.refused(),
                             .garbage = reply.garbage(),
                             .round_median = Nanoseconds{reply.round_median_ns()},
                             .round_p99 = Nanoseconds{reply.round_p99_ns()},
                             .waits_for_reports = reply.waits_for_reports(),
                             .bundles = reply.bundles()};
  status.members.reserve(static_cast<std::size_t>(reply.members_size()));
  for (const DescribeReply::Member& one : reply.members()) {
    serve::MemberStatus member{.name = one.name(), .is_joined = one.is_joined()};
    for (const DescribeReply::Slice& slice : one.slices()) {
      member.slices.push_back({slice.of(), slice.milli(), !slice.is_cut_off()});
    }
    status.members.push_back(std::move(member));
  }
  status.courses.reserve(static_cast<std::size_t>(reply.courses_size()));
  for (const DescribeReply::Course& one : reply.courses()) {
    status.courses.push_back(
        {one.name(), one.epoch(), one.rounds(), one.evictions(), one.members()});
  }
  return status;
}

}  // namespace weir::cluster
