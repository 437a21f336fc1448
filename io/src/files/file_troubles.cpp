#include <heddle/io/files/file_troubles.hpp>
#include <mutex>
#include <utility>

namespace heddle {

namespace {

struct Troubles {
  std::mutex mutex;
  std::vector<std::string> texts;
};

Troubles& troubles() {
  static Troubles of_process;
  return of_process;
}

}  // namespace

void note_file_trouble(std::string text) {
  std::lock_guard const lock(troubles().mutex);
  troubles().texts.push_back(std::move(text));
}

std::vector<std::string> take_file_troubles() {
  std::lock_guard const lock(troubles().mutex);
  return std::exchange(troubles().texts, {});
}

}  // namespace heddle
