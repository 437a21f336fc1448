#include "corpus/text_conversion.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <iostream>
#include <map>
#include <memory>
#include <string_view>

#include "corpus/forked_workers.hpp"
#include "run/directory/warning.hpp"
#include "run/processes/forked_process.hpp"

namespace heddle {
namespace {

using Clock = std::chrono::steady_clock;

/// A line about the progress, which is written over where standard error is a terminal.
class ProgressLine {
 public:
  /// `results_on_stdout`: results may be written to the same terminal.
  ProgressLine(LineSource const& text, bool results_on_stdout)
      : text_(text), terminal_(::isatty(STDERR_FILENO) == 1 && (!results_on_stdout || ::isatty(STDOUT_FILENO) == 0)) {}
  ~ProgressLine() { clear(); }

  void add(std::int64_t lines, std::int64_t tokens) {
    if (lines_ == 0) {
      first_share_ = text_.progress().value_or(0);
    }
    lines_ += lines;
    tokens_ += tokens;
    auto const now = Clock::now();
    if (now - shown_ < (terminal_ ? std::chrono::seconds(1) : std::chrono::seconds(60))) {
      return;
    }
    shown_ = now;
    double const seconds = std::chrono::duration<double>(now - began_).count();
    std::string line = fmt::format("heddle: {} lines, {:.1f} lines/s, {} tokens/s", readable_count(lines_),
                                   static_cast<double>(lines_) / seconds,
                                   readable_count(static_cast<std::int64_t>(static_cast<double>(tokens_) / seconds)));
    if (auto const share = text_.progress(); share && *share > first_share_) {
      line += fmt::format(", {:.0f} s left", seconds * (1 - *share) / (*share - first_share_));
    }
    clear();
    std::cerr << line << (terminal_ ? "" : "\n") << std::flush;
    is_shown_ = terminal_;
  }
  void clear() {
    if (is_shown_) {
      std::cerr << "\r\x1b[K" << std::flush;
    }
    is_shown_ = false;
  }

 private:
  LineSource const& text_;
  bool terminal_;
  double first_share_ = 0;  ///< the share of the text that had been read when the first lines were done
  bool is_shown_ = false;
  std::int64_t lines_ = 0;
  std::int64_t tokens_ = 0;
  Clock::time_point began_ = Clock::now();
  Clock::time_point shown_ = began_;
};

/// Writes the first messages of each kind about lines to standard error, and in the end the number of the others.
class LimitedMessages {
 public:
  explicit LimitedMessages(ProgressLine& progress) : progress_(progress) {}

  void write(std::vector<std::string> const& messages) {
    for (std::string const& message : messages) {
      if (counts_[kind_of(message)]++ < max_messages) {
        progress_.clear();
        report_on_stderr(message);
      } else {
        ++others_;
      }
    }
  }
  void finish() {
    progress_.clear();
    if (others_ > 0) {
      report_on_stderr(fmt::format("{} more lines like these", readable_count(others_)));
    }
  }

 private:
  static constexpr std::int64_t max_messages = 10;

  /// The message without its numbers.
  static std::string kind_of(std::string message) {
    std::erase_if(message, [](char letter) { return (letter >= '0' && letter <= '9') || letter == ','; });
    return message;
  }

  ProgressLine& progress_;
  std::map<std::string, std::int64_t> counts_;  ///< by kinds
  std::int64_t others_ = 0;
};

/// The number of processes that share the work of this one: one also where MPI must not be copied, and where a line is
/// answered before the next is read.
int own_processes(Processes const& processes, LineSource const& text) {
  int const count = processes_for(processes.threads);
  return processes.launched || text.answers_each_line() ? 1 : count;
}

/// The shortest line that is not empty, as a chunk.
Chunk short_chunk(Chunk const& chunk) {
  Chunk found;
  for (SourceLine const& line : chunk.lines) {
    if (!line.text.empty() && (found.lines.empty() || line.text.size() < found.lines.front().text.size())) {
      found.lines = {line};
    }
  }
  return found;
}

}  // namespace

ComputeChunk chunk_computation(TrainedModel& model, GenerationOptions const& options,
                               TextConversion const& conversion) {
  auto const generator = std::make_shared<ChunkGenerator>(model, options, conversion.encode);
  return [&model, conversion, generator](Chunk const& chunk, std::function<void()> const& pause) {
    std::vector<GeneratedLine> lines = generator->generate(chunk.lines, pause);
    std::vector<std::string> messages;
    std::int64_t tokens = 0;
    for (auto const& [line, encoded, hypotheses] : lines) {
      if (encoded.cut_from > 0) {
        messages.push_back(fmt::format("line {}: {} tokens; only the {} {} are {} (model.max_length = {})", line.number,
                                       readable_count(encoded.cut_from), conversion.kept,
                                       readable_count(encoded.tokens->size()), conversion.done,
                                       model.config().model.max_length));
      }
      if (encoded.prefix_cut_from > 0) {
        messages.push_back(fmt::format("line {}: a prefix of {} tokens; only the first {} are taken", line.number,
                                       readable_count(encoded.prefix_cut_from), readable_count(encoded.prefix.size())));
      }
      tokens += hypotheses.empty() ? 0 : std::ssize(hypotheses.front().tokens) + 1;
    }
    ChunkResult result = conversion.conclude(model, std::move(lines));
    result.number = chunk.number;
    result.lines = std::ssize(chunk.lines);
    result.tokens = tokens;
    std::ranges::move(messages, std::back_inserter(result.messages));
    return result;
  };
}

RankGroups make_rank_groups(Communicator const& world, std::vector<std::string> const& overrides) {
  constexpr std::string_view key = "parallel.tensor=";
  int tensor = 1;
  for (std::string text : overrides) {
    std::erase(text, ' ');
    if (text.starts_with(key)) {
      std::from_chars(text.data() + key.size(), text.data() + text.size(), tensor);
    }
  }
  if (tensor < 1 || world.size() % tensor != 0) {
    throw ConfigError(
        "parallel.tensor = {}: {} rank{} {} not divided into groups of that size; start a multiple of it with mpirun",
        tensor, world.size(), world.size() == 1 ? "" : "s", world.size() == 1 ? "is" : "are");
  }
  return {world, tensor == 1 ? Communicator::self() : world.split(world.rank() / tensor, world.rank(), "tensor")};
}

void convert_chunks(Processes const& processes, LineSource const& text,
                    std::function<std::optional<Chunk>()> const& next, ComputeChunk const& compute,
                    std::function<void(ChunkResult)> const& finish) {
  RankGroups const& ranks = processes.ranks;
  if (ranks.world.rank() > 0) {
    serve_chunks(ranks, compute);
    return;
  }
  ProgressLine progress(text, processes.writes_stdout);
  LimitedMessages messages(progress);
  auto const report = [&](ChunkResult result) {
    messages.write(result.messages);
    std::int64_t const lines = result.lines;
    std::int64_t const tokens = result.tokens;
    finish(std::move(result));
    progress.add(lines, tokens);
  };
  if (ranks.world.size() > 1) {
    RankWorkers workers(ranks, compute);
    process_chunks(next, workers, report);
    workers.finish();
    messages.finish();
    return;
  }
  int count = own_processes(processes, text);
  std::vector<Chunk> first;
  if (count > 1) {  // two chunks show whether other processes would have anything to do
    for (std::optional<Chunk> chunk; first.size() < 2 && (chunk = next());) {
      first.push_back(std::move(*chunk));
    }
    count = first.size() < 2 ? 1 : count;
  }
  if (count > 1) {
    compute(short_chunk(first.front()), [] {});  // so that the processes share the weights as kernels pack them
  }
  std::unique_ptr<ChunkWorkers> const workers =
      count == 1 ? std::unique_ptr<ChunkWorkers>(std::make_unique<OwnWorker>(compute))
                 : std::make_unique<ForkedWorkers>(count, compute);
  std::size_t taken = 0;
  process_chunks([&] { return taken < first.size() ? std::optional(std::move(first[taken++])) : next(); }, *workers,
                 report);
  messages.finish();
}

}  // namespace heddle
