// SPDX-License-Identifier: Apache-2.0
//
// Access to a Lustre server's files: on this machine, under another root, or in memory, served by a
// model. The driver uses only this interface, so it runs the same in all three cases.
//
//   HostTree tree({.root = "/srv/fake"});
//   tree.read("/proc/fs/lustre/obdfilter/lustre-OST0000/job_stats")
//
// Paths are those of a server. A read continues to the end of file: job_stats returns one job per
// read(2). A write is one write(2), complete and without a newline, since Lustre treats each as a
// command. lctl is used only if a file cannot be opened for writing (or always, or never): it
// starts a process for each command, which takes a thousand times as long. It works only on this
// machine, so with another root it is never used by default.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/host/fd.h"

namespace weir::lustre {

class Tree {
 public:
  virtual ~Tree() = default;

  virtual Result<std::string> read(const std::string& path) = 0;
  virtual Result<void> write(const std::string& path, std::string_view text) = 0;
  // Names in a folder, sorted.
  virtual Result<std::vector<std::string>> list(const std::string& folder) = 0;

 protected:
  Tree() = default;
  Tree(const Tree&) = default;
  Tree& operator=(const Tree&) = default;
};

class HostTree final : public Tree {
 public:
  enum class Lctl : std::uint8_t { kAuto, kAlways, kNever };

  // Enough for more than a hundred thousand jobs; EFBIG above it.
  static constexpr std::size_t kFileMax = std::size_t{256} << 20;

  struct Options {
    std::string root;  // prefix of every path
    Lctl lctl = Lctl::kAuto;
    std::string lctl_program = "lctl";
  };

  explicit HostTree(Options options) : options_(std::move(options)) {}

  Result<std::string> read(const std::string& path) override;
  Result<void> write(const std::string& path, std::string_view text) override;
  Result<std::vector<std::string>> list(const std::string& folder) override;

  // How commands for a path would be written: "directly" or "by lctl"; an error if neither works.
  Result<std::string> way_of_writing(const std::string& path) const;

  // One driver at a time: two would divide the same server twice, and the rules of one would match
  // before those of the other. Locks the folder of debugfs, of which a kernel has one, whatever map
  // and prefix the drivers use. EBUSY if another has it. Held until the descriptor is closed.
  // Without such a folder the descriptor is not open.
  Result<host::Fd> lock_server() const;

  std::uint64_t lctl_started() const { return lctl_started_; }
  // Time spent in reading and writing so far.
  Nanoseconds in_files() const { return in_files_; }

 private:
  bool may_use_lctl() const {
    return options_.lctl == Lctl::kAlways ||
           (options_.lctl == Lctl::kAuto && options_.root.empty());
  }
  bool finds_lctl() const;
  Result<std::string> read_whole(const std::string& path);
  Result<void> write_whole(const std::string& path, std::string_view text);
  Result<void> write_by_lctl(const std::string& path, std::string_view text);

  Options options_;
  Nanoseconds in_files_{0};
  std::uint64_t lctl_started_ = 0;
};

// ".../lustre/ost/OSS/ost_io/nrs_tbf_rule" as "ost.OSS.ost_io.nrs_tbf_rule".
std::string lctl_name(std::string_view path);

}  // namespace weir::lustre
