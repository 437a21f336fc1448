#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "file_log.hpp"

namespace heddle {

/// How the events that no fsync had made durable meet the crash.
enum class Loss {
  none,   ///< all are on the disk
  all,    ///< none is
  some,   ///< each with probability 1/2
  torn,   ///< each with probability 1/2, writes in part, in sectors
  data,   ///< names are, bytes are not: files have their length, and zeros
  names,  ///< bytes are, names are not
};
inline constexpr int losses = 6;

/// The disk after a crash: what is durable of a log's first events, and some of what is not. An fsync of a file makes
/// its bytes durable, one of a directory the names in it, as POSIX promises; nothing else does, and events that are not
/// durable come to the disk in any order. A rename is never done by half.
class CrashedDisk {
 public:
  CrashedDisk(std::vector<FileEvent> const& events, std::size_t first, Loss loss, std::uint64_t seed);

  /// Makes the disk's tree in an empty directory.
  void write_to(std::filesystem::path const& directory) const;

 private:
  struct Node {
    bool directory = false;
    std::string content;  ///< of a symbolic link its target
    bool link = false;
    std::map<std::string, std::size_t> entries;
  };
  /// A change of one or two directories' entries, or of a file's bytes.
  struct Change {
    FileEvent const* event;
    std::size_t node;       ///< the file, or the directory with the name
    std::size_t child = 0;  ///< of a name: the node that gets it
    std::string name = {};  ///< the new name, or the removed one
    std::size_t from = 0;   ///< of a rename: the directory of the old name
    std::string old_name = {};
    bool durable = false;
  };

  std::size_t new_node(bool directory);
  std::size_t find(std::string_view path) const;
  void record(FileEvent const& event);
  void record_write(FileEvent const& event);
  static void apply(Change const& change, std::vector<Node>& nodes);
  void apply_some(Change const& change, Loss loss);
  void write_torn(Change const& change, bool only_length);
  void write_node(std::size_t node, std::filesystem::path const& place) const;

  std::mt19937_64 random_;
  std::vector<Change> changes_;
  std::vector<Node> live_;  ///< as programs see it: all events
  std::vector<Node> disk_;  ///< the same nodes, as the crash left them
};

}  // namespace heddle
