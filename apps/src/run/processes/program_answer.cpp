#include "program_answer.hpp"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdio>

namespace heddle {

ProgramAnswer ask_program(std::string const& command, std::chrono::milliseconds timeout) {
  constexpr std::size_t max_output = std::size_t{64} << 10;
  constexpr int not_found = 127;
  constexpr int timed_out = 124;  // of `timeout`, which kills processes that a script has started, too
  constexpr int killed = 137;
  double const seconds = std::chrono::duration<double>(timeout).count();
  // The redirections come first, so that those of the command hold.
  std::string const line = fmt::format("< /dev/null 2> /dev/null timeout --kill-after=1 {} {}", seconds, command);
  std::FILE* const pipe = ::popen(line.c_str(), "re");
  if (pipe == nullptr) {
    return {};
  }
  ProgramAnswer answer;
  std::array<char, 4096> block{};
  for (std::size_t read = 1; read > 0;) {
    read = std::fread(block.data(), 1, block.size(), pipe);
    answer.output.append(block.data(), answer.output.size() < max_output ? read : 0);
  }
  answer.output.resize(std::min(answer.output.size(), max_output));
  int const status = ::pclose(pipe);
  int const code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
  using End = ProgramAnswer::End;
  answer.end = code == 0                             ? End::done
               : code == not_found                   ? End::not_found
               : code == timed_out || code == killed ? End::late
                                                     : End::failed;
  return answer;
}

}  // namespace heddle
