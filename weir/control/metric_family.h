// SPDX-License-Identifier: Apache-2.0
//
// The Prometheus text format: families of series and their labels. Names of clients are escaped, so
// that none can end a line or a label. Writes to a string; keeps nothing.
//
//   Family lines(page, "weir_job_bytes_total", "counter", "Bytes of completed requests of a job.");
//   lines.add(labels_of("ost_io", "jobid", "dd.0"), 4096);
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "weir/account/job_times.h"

namespace weir::control {

// In double quotes, escaped for the text format.
std::string metric_label(std::string_view value);

// {service="..."} and {service="...",KEY="..."}
std::string labels_of(std::string_view service);
std::string labels_of(std::string_view service, std::string_view key, std::string_view value);

// A metric family: one line per series. The views outlive it.
class Family {
 public:
  Family(std::string& page, std::string_view name, std::string_view type, std::string_view help);

  void add(std::string_view labels, std::uint64_t value);
  void add_signed(std::string_view labels, std::int64_t value);
  void add_seconds(std::string_view labels, std::uint64_t ns);
  // A histogram with buckets from 16 microseconds to 69 seconds, at powers of two of a nanosecond.
  // REQUIRES: labels are not empty.
  void add_times(std::string_view labels, const TimeHistogram& times);

 private:
  std::string& page_;
  std::string_view name_;
};

}  // namespace weir::control
