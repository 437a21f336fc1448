#pragma once

#include <cstddef>
#include <map>
#include <mutex>

#include "system_memory.hpp"

namespace heddle {

/// One range of reserved addresses for the memory of an emulated device. No access is allowed except while the range
/// is open. Thread-safe.
class AddressRange {
 public:
  /// Of huge pages, where the system has them: each opening looks at every page in use.
  static constexpr std::size_t huge_page = std::size_t{1} << 21;

  /// Gives memory in multiples of `unit`. Throws Error if the system refuses so many addresses.
  AddressRange(std::size_t bytes, std::size_t unit);
  ~AddressRange();
  AddressRange(AddressRange const&) = delete;
  AddressRange& operator=(AddressRange const&) = delete;

  /// Zeroed memory, whose pages are allocated when first touched. Throws Error if the range is full.
  std::byte* take(std::size_t bytes);
  void give_back(std::byte* begin, std::size_t bytes);

  /// Allows access until as many calls of close have come.
  void open();
  void close();

 private:
  void clear(std::byte* begin, std::size_t bytes) const;
  void protect(int access) const;

  std::mutex mutex_;
  ArenaBlock block_;
  std::byte* begin_ = nullptr;  ///< in it
  std::size_t bytes_ = 0;
  std::size_t unit_ = 0;
  std::size_t used_ = 0;                     ///< bytes below which the range has been in use
  std::map<std::size_t, std::size_t> free_;  ///< below `used_`: bytes by offset, neighbours joined
  int openings_ = 0;
};

}  // namespace heddle
