#include <fmt/format.h>

#include <heddle/core/base/error.hpp>
#include <heddle/core/base/readable.hpp>
#include <heddle/dist/trace/trace_file.hpp>
#include <heddle/io/files/regular_file.hpp>
#include <memory>
#include <ostream>

#include "report/json_text.hpp"
#include "supervision/reported_end.hpp"
#include "trainer.hpp"

// The trainer's reports at the start and at the end of a run.
namespace heddle {

namespace {

constexpr char const* report_name = "report.json";

}  // namespace

void Trainer::begin_report() {
  report_->set_parameters(whole_model_->elements());
  if (speaks()) {
    report_->compare_with(setup_.directory / report_name);
    write_report();
  }
  tracing_ = setup_.trace != nullptr && setup_.traced_steps > 0;
}

void Trainer::write_report() const {
  directory_->replace_file(report_name, json_text(report_->json()) + "\n");
}

void Trainer::finish_trace(bool last_step) {
  StepTimes::Seconds const made = setup_.times.seconds();
  if (!tracing_ || !(last_step || made.steps >= setup_.traced_steps)) {
    return;
  }
  setup_.watch.phase("writing the trace after step", state_.step);
  tracing_ = false;
  std::filesystem::path const path = setup_.directory / "trace.json";
  std::unique_ptr<std::ostream> file;
  try {
    if (speaks()) {
      directory_->replace_file(path.filename().string(), "");  // whatever stood there
      file = open_output(path, OutputMode::append);
    }
  } catch (Error const&) {
    file = std::make_unique<std::ostream>(nullptr);  // which fails in write_trace, on every rank
  }
  try {
    write_trace(setup_.parallel.world, *setup_.trace, setup_.clock_offset, file.get());
    texts_.say(fmt::format("the trace of {} step{} is in {}", readable_count(made.steps), made.steps == 1 ? "" : "s",
                           path.string()));
  } catch (Error const& error) {
    texts_.say_always(fmt::format("note: {}: {}", path.string(), error.what()));
  }
}

Ending Trainer::ending(std::string const& how) const {
  return {.how = how,
          .step = state_.step,
          .steps = config_.train.steps,
          .tokens = state_.tokens,
          .seconds = log_ ? log_->seconds() : 0,
          .best_step = state_.best_step,
          .best_valid_loss = state_.best_valid_loss,
          .best_bleu = log_ ? log_->best_bleu() : std::nullopt,
          .directory = setup_.directory,
          .checkpoint = checkpoints_.directory() / checkpoint_directory_name(checkpoints_.committed_step()),
          .command = setup_.command_to_go_on,
          .plugins = config_.plugins.paths};
}

void Trainer::end_finished() {
  setup_.watch.finish("reporting after step", state_.step);
  save_final_checkpoint();
  if (state_.best_step > 0) {
    checkpoints_.settle_best(state_.best_step);
  }
  // `heddle run` takes the report's word for the end of the run. One that says so already has the figures of its steps.
  if (speaks() && reported_end(setup_.directory, {}) != ExitCode::done) {
    report_->set_parameters(whole_model_->elements());
    report_->conclude(
        {.state = final_state(), .best_step = state_.best_step, .best_valid_loss = state_.best_valid_loss});
    write_report();
  }
  if (setup_.traced_steps > 0) {
    texts_.say_always("note: no step was made, so there is nothing to trace");
  }
  texts_.say_always(already_finished(ending("done"), report_->model()));
}

void Trainer::print_end(std::string const& how) {
  setup_.watch.finish("reporting after step", state_.step);
  auto const& totals = batches_->totals();
  double const typical_length = static_cast<double>(totals.tokens) / static_cast<double>(totals.usable);
  std::string const tables =
      report_->end(*engine_, setup_.execution, setup_.times, typical_length,
                   {.state = how, .best_step = state_.best_step, .best_valid_loss = state_.best_valid_loss});
  if (speaks()) {
    texts_.note(tables + describe_speed(report_->json()));
    write_report();
    texts_.say_always(verdict(ending(how), report_->model(), &report_->json()));
  }
}

}  // namespace heddle
