// SPDX-License-Identifier: Apache-2.0
#include "weir/host/block_device.h"

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

#include <fmt/format.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "weir/base/quote.h"
#include "weir/host/holder.h"

namespace weir::host {
namespace {

namespace fs = std::filesystem;

std::string number_of(dev_t device) { return fmt::format("{}:{}", major(device), minor(device)); }

std::string sysfs_of(const std::string& number) { return "/sys/dev/block/" + number; }

// The device itself or a partition of it.
bool belongs_to(const std::string& number, dev_t device) {
  if (number == number_of(device)) return true;
  std::error_code error;
  const fs::path folder = fs::canonical(sysfs_of(number), error);
  if (error || !fs::exists(folder / "partition", error)) return false;
  std::ifstream file(folder.parent_path() / "dev");
  std::string disk;
  return file >> disk && disk == number_of(device);
}

std::string device_number(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISBLK(status.st_mode) ? number_of(status.st_rdev)
                                                                     : std::string();
}

// The kernel writes spaces and backslashes of a path as \040.
std::string unescape(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      const std::string digits(text.substr(i + 1, 3));
      plain += static_cast<char>(std::strtol(digits.c_str(), nullptr, 8));
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

// 36 35 98:0 /root /mount/point rw,noatime master:1 - ext3 /dev/root rw
std::string mount_of(dev_t device) {
  std::ifstream mounts("/proc/self/mountinfo");
  std::string line;
  while (std::getline(mounts, line)) {
    std::istringstream words(line);
    std::string id, parent, number, root, point, word, kind, source;
    words >> id >> parent >> number >> root >> point;
    while (words >> word && word != "-") continue;
    words >> kind >> source;
    // Some file systems, such as btrfs, have their own device number.
    const std::string behind = device_number(unescape(source));
    if (belongs_to(number, device) || (!behind.empty() && belongs_to(behind, device))) {
      return unescape(point);
    }
  }
  return {};
}

bool is_swap(dev_t device) {
  std::ifstream swaps("/proc/swaps");
  std::string line;
  while (std::getline(swaps, line)) {
    const std::string number = device_number(unescape(line.substr(0, line.find_first_of(" \t"))));
    if (!number.empty() && belongs_to(number, device)) return true;
  }
  return false;
}

std::string holder_of(dev_t device) {
  std::error_code error;
  fs::directory_iterator holders(sysfs_of(number_of(device)) + "/holders", error);
  if (error || holders == fs::directory_iterator()) return {};
  return holders->path().filename();
}

}  // namespace

Result<BlockDevice> inspect_device(int file, const std::string& where) {
  BlockDevice device;
  int sector = 0;
  int read_only = 0;
  if (ioctl(file, BLKGETSIZE64, &device.size) != 0 || ioctl(file, BLKSSZGET, &sector) != 0 ||
      ioctl(file, BLKROGET, &read_only) != 0) {
    return fail_errno(errno, where);
  }
  if (sector > 0) device.sector = static_cast<std::uint32_t>(sector);
  device.is_read_only = read_only != 0;
  return device;
}

std::string system_use_of(dev_t device) {
  if (const std::string point = mount_of(device); !point.empty()) {
    return "it is mounted at " + quote(point);
  }
  if (is_swap(device)) return "it is swap space";
  if (const std::string holder = holder_of(device); !holder.empty()) {
    return "it is part of " + quote(holder);
  }
  return {};
}

long process_with(dev_t device) {
  const auto has_it = [&](const fs::path& process) {
    std::error_code error;
    for (const fs::directory_entry& one : fs::directory_iterator(process / "fd", error)) {
      struct stat status {};
      if (stat(one.path().c_str(), &status) == 0 && S_ISBLK(status.st_mode) &&
          status.st_rdev == device) {
        return true;
      }
    }
    return false;
  };
  if (has_it("/proc/self")) return getpid();
  std::error_code error;
  for (const fs::directory_entry& one : fs::directory_iterator("/proc", error)) {
    const long pid = std::strtol(one.path().filename().c_str(), nullptr, 10);
    if (pid > 0 && has_it(one.path()) && is_alive(pid)) return pid;
  }
  return 0;
}

}  // namespace weir::host
