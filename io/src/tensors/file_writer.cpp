#include "file_writer.hpp"

#include <heddle/core/base/seconds.hpp>
#include <utility>

namespace heddle {

FileWriter::FileWriter(std::filesystem::path const& path) : file_(path), hash_(path.filename().string()) {}

std::span<std::uint8_t> FileWriter::buffer(std::size_t bytes) {
  latest_ = bytes;
  if (filling_.memory.size() < filling_.filled + bytes) {
    filling_.memory.resize(filling_.filled + bytes);
  }
  return std::span(filling_.memory).subspan(filling_.filled, bytes);
}

void FileWriter::queue() {
  position_ += static_cast<std::int64_t>(latest_);
  filling_.filled += std::exchange(latest_, 0);
  if (filling_.filled >= DirectBuffer::bytes) {
    start();
  }
}

void FileWriter::wait() {
  if (thread_) {
    thread_->finish();
    thread_.reset();
  }
}

void FileWriter::start() {
  wait();
  std::swap(filling_, writing_);
  filling_.filled = 0;
  thread_.emplace([this] { write(std::span(writing_.memory).first(writing_.filled)); });
}

void FileWriter::write(std::span<std::uint8_t const> bytes) {
  auto const began = SteadyClock::now();
  hash_.add(bytes);
  digest_seconds_ += seconds_since(began);
  auto const hashed = SteadyClock::now();
  file_.append(bytes);
  write_seconds_ += seconds_since(hashed);
}

FileDigest FileWriter::finish(bool durable) {
  start();
  wait();
  auto const began = SteadyClock::now();
  file_.finish(durable);
  write_seconds_ += seconds_since(began);
  return hash_.finish();
}

}  // namespace heddle
