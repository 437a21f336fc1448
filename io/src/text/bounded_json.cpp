#include "text/bounded_json.hpp"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <heddle/core/base/error.hpp>
#include <new>

namespace heddle {
namespace {

/// Memory that ends. (Boost.JSON frees what it had when an allocation throws.)
class BoundedMemory final : public boost::json::memory_resource {
 private:
  static constexpr std::size_t limit = std::size_t{512} << 20;

  // Boost.JSON gives memory back under another alignment than it asked for; `new` aligns to the largest.
  void* do_allocate(std::size_t bytes, std::size_t /*alignment*/) override {
    if (bytes > limit - used_) {
      throw DataError(fmt::format("it needs more than {} MiB of memory", limit >> 20U));
    }
    used_ += bytes;
    return ::operator new(bytes);
  }
  void do_deallocate(void* memory, std::size_t bytes, std::size_t /*alignment*/) override {
    used_ -= bytes;
    ::operator delete(memory);
  }
  bool do_is_equal(boost::json::memory_resource const& other) const noexcept override { return this == &other; }

  std::size_t used_ = 0;
};

}  // namespace

boost::json::value parse_bounded_json(std::string_view text, std::string_view what) {
  try {
    auto const memory = boost::json::make_shared_resource<BoundedMemory>();
    boost::json::parser parser(memory);
    parser.reset(memory);
    boost::system::error_code problem;
    parser.write({text.data(), text.size()}, problem);
    if (problem) {
      throw DataError("it is not JSON: " + problem.message());
    }
    return parser.release();
  } catch (DataError const& error) {
    throw DataError(fmt::format("{}: {}", what, error.what()));
  }
}

std::string plain_message(std::exception const& error) {
  std::string_view const message = error.what();
  return std::string(message.substr(0, message.find(" [boost")));
}

}  // namespace heddle
