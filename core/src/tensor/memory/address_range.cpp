#include "address_range.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <heddle/core/base/error.hpp>
#include <iterator>
#include <system_error>

#include "huge_pages.hpp"

namespace heddle {

namespace {

std::size_t rounded(std::size_t bytes, std::size_t to) {
  return (bytes + to - 1) / to * to;
}

}  // namespace

AddressRange::AddressRange(std::size_t bytes, std::size_t unit)
    : block_(map_addresses(bytes + huge_page)), bytes_(bytes), unit_(unit) {
  auto const address = reinterpret_cast<std::uintptr_t>(block_.begin);
  begin_ = block_.begin + (rounded(address, huge_page) - address);
  advise_huge_pages(begin_, bytes);
}

AddressRange::~AddressRange() {
  unmap_addresses(block_);
}

std::byte* AddressRange::take(std::size_t bytes) {
  std::size_t const wanted = rounded(bytes, unit_);
  std::lock_guard const lock(mutex_);
  auto const found = std::ranges::find_if(free_, [wanted](auto const& part) { return part.second >= wanted; });
  if (found != free_.end()) {
    auto const [offset, available] = *found;
    free_.erase(found);
    if (available > wanted) {
      free_.emplace(offset + wanted, available - wanted);
    }
    return begin_ + offset;
  }
  if (wanted > bytes_ - used_) {
    throw Error(fmt::format("the emulated device's {} bytes of addresses are used up", bytes_));
  }
  std::size_t const offset = used_;
  used_ += wanted;
  if (openings_ > 0) {
    protect(PROT_READ | PROT_WRITE);
  }
  return begin_ + offset;
}

void AddressRange::give_back(std::byte* begin, std::size_t bytes) {
  std::lock_guard const lock(mutex_);
  clear(begin, rounded(bytes, unit_));
  auto part = free_.emplace(static_cast<std::size_t>(begin - begin_), rounded(bytes, unit_)).first;
  if (auto const next = std::next(part); next != free_.end() && part->first + part->second == next->first) {
    part->second += next->second;
    free_.erase(next);
  }
  if (part != free_.begin()) {
    auto const before = std::prev(part);
    if (before->first + before->second == part->first) {
      before->second += part->second;
      free_.erase(part);
    }
  }
}

/// The next owner finds zeros. Small parts stay in their huge page.
void AddressRange::clear(std::byte* begin, std::size_t bytes) const {
  if (unit_ >= huge_page) {
    madvise(begin, bytes, MADV_DONTNEED);
    return;
  }
  if (openings_ == 0) {
    protect(PROT_READ | PROT_WRITE);
  }
  std::memset(begin, 0, bytes);
  if (openings_ == 0) {
    protect(PROT_NONE);
  }
}

void AddressRange::open() {
  std::lock_guard const lock(mutex_);
  if (++openings_ == 1) {
    protect(PROT_READ | PROT_WRITE);
  }
}

void AddressRange::close() {
  std::lock_guard const lock(mutex_);
  if (--openings_ == 0) {
    protect(PROT_NONE);
  }
}

void AddressRange::protect(int access) const {
  if (used_ > 0 && mprotect(begin_, rounded(used_, huge_page), access) != 0) {
    throw Error(
        fmt::format("mprotect of an emulated device's {} bytes: {}", used_, std::generic_category().message(errno)));
  }
}

}  // namespace heddle
