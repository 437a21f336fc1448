#include <algorithm>
#include <heddle/io/hdf5/hdf5.hpp>

namespace heddle::hdf5 {

namespace {

constexpr std::int64_t page_bytes = 4096;

/// Calls work(page, offset in it, index of the first byte, count) for the part of the bytes that lies in each page.
template <class Work>
void for_each_page(std::int64_t offset, std::size_t bytes, Work const& work) {
  for (std::size_t done = 0; done < bytes;) {
    std::int64_t const at = offset + static_cast<std::int64_t>(done);
    auto const within = static_cast<std::size_t>(at % page_bytes);
    std::size_t const count = std::min(static_cast<std::size_t>(page_bytes) - within, bytes - done);
    work(at / page_bytes, within, done, count);
    done += count;
  }
}

}  // namespace

void FileImage::read(std::int64_t offset, std::span<std::uint8_t> bytes) {
  for_each_page(offset, bytes.size(), [&](std::int64_t page, std::size_t within, std::size_t first, std::size_t count) {
    auto const found = pages_.find(page);
    auto const to = bytes.begin() + static_cast<std::ptrdiff_t>(first);
    if (found == pages_.end()) {
      std::fill_n(to, count, std::uint8_t{0});
    } else {
      std::copy_n(found->second.begin() + static_cast<std::ptrdiff_t>(within), count, to);
    }
  });
}

void FileImage::write(std::int64_t offset, std::span<std::uint8_t const> bytes) {
  for_each_page(offset, bytes.size(), [&](std::int64_t page, std::size_t within, std::size_t first, std::size_t count) {
    auto& content = pages_[page];
    content.resize(static_cast<std::size_t>(page_bytes));
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(first), count,
                content.begin() + static_cast<std::ptrdiff_t>(within));
  });
  size_ = std::max(size_, offset + static_cast<std::int64_t>(bytes.size()));
}

}  // namespace heddle::hdf5
