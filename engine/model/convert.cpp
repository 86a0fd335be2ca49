// write_container: an opened folder becomes a container, one tensor at a time.
#include <algorithm>
#include <array>
#include <utility>

#include "engine/model/container_writer.h"
#include "engine/model/json_text.h"
#include "engine/model/printable.h"

namespace terrace {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMaxSideFileBytes = 64 << 20;

/// One tensor to write and where it comes from.
struct Job {
    const TensorSource* source = nullptr;
    ContainerTensor tensor;
};

bool ends_with(std::string_view text, std::string_view end) {
    return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

/// Converts one folder; lives for one call of write_container.
class Converter {
public:
    Converter(const ModelFolder& source,
              const ContainerOptions& options,
              fs::path out,
              const std::function<void(const ConvertProgress&)>& progress,
              std::stop_token stop)
        : source_(source),
          options_(options),
          out_(std::move(out)),
          progress_(progress),
          stop_(std::move(stop)) {}

    Status run() {
        for (Status (Converter::*step)() :
             {&Converter::prepare_folder, &Converter::list_jobs, &Converter::check_space,
              &Converter::write_files, &Converter::copy_side_files}) {
            if (Status done = (this->*step)(); !done) {
                return done;
            }
        }
        return {};
    }

private:
    Status prepare_folder() {
        std::error_code error;
        const fs::path out = fs::weakly_canonical(fs::absolute(out_, error), error);
        const fs::path source = fs::canonical(source_.path, error);
        const auto [in_source, in_out] =
            std::mismatch(source.begin(), source.end(), out.begin(), out.end());
        if (in_source == source.end()) {
            return Error{ErrorCode::WrongUse,
                         "a folder outside the model was expected; nothing is ever written into a "
                         "model folder",
                         printable_path(out_), "Choose another place."};
        }
        fs::create_directories(out_, error);
        if (error) {
            return Error{ErrorCode::Io, "the folder cannot be made: " + error.message(),
                         printable_path(out_), "Choose another place."};
        }
        if (!fs::is_empty(out, error) || error) {
            return Error{ErrorCode::WrongUse, "an empty folder was expected, it holds files",
                         printable_path(out_), "Choose a new or an empty folder."};
        }
        return {};
    }

    [[nodiscard]] bool is_indexer(const TensorSource& source) const {
        const TensorNames& names = source_.family->names;
        return source.role == TensorRole::Indexer || ends_with(source.name, names.index_k_norm) ||
               ends_with(source.name, names.index_k_norm_bias);
    }

    Status list_jobs() {
        const Checkpoint& checkpoint = *source_.checkpoint;
        for (const TensorSource& source : checkpoint.dense()) {
            const bool dropped = options_.mtp_indexer == ContainerOptions::MtpIndexer::Drop &&
                                 source.in_mtp_layer && is_indexer(source);
            if (!dropped) {
                add_job(source, -1);
            }
        }
        std::int64_t number = 0;
        for (const TensorSource& source : checkpoint.experts()) {
            add_job(source, number++ / 3);
        }
        return {};
    }

    void add_job(const TensorSource& source, std::int64_t expert) {
        ContainerTensor tensor;
        tensor.name = source.name;
        tensor.format = target_format(source, source_.checkpoint->kind(), SessionKind::Quantised);
        tensor.rows = source.rows;
        tensor.cols = source.cols;
        if (source.role == TensorRole::Vector) {
            tensor.shape = {source.cols};
        }
        tensor.set = source.in_mtp_layer  ? ContainerSet::Mtp
                     : is_indexer(source) ? ContainerSet::Indexer
                                          : ContainerSet::Main;
        tensor.expert = expert;
        total_ += tensor.rows * (raw_row_bytes(tensor.format.kind, tensor.cols) +
                                 4 * scales_per_row(tensor.format, tensor.cols));
        jobs_.push_back({&source, std::move(tensor)});
    }

    Status check_space() {
        std::error_code error;
        const fs::space_info space = fs::space(out_, error);
        // Headers take far less than a hundredth of the weights.
        const auto needed = static_cast<std::uintmax_t>(total_ + total_ / 100 + (1 << 20));
        if (!error && space.available < needed) {
            return Error{ErrorCode::TooLarge,
                         std::to_string(needed) + " free bytes were expected, there are " +
                             std::to_string(space.available),
                         printable_path(out_), "Free some space, or choose another drive."};
        }
        return {};
    }

    /// The reference writes for each set what one source file gives into one file.
    [[nodiscard]] std::vector<ContainerFilePlan> reference_plans() const {
        std::vector<ContainerFilePlan> plans;
        for (const ContainerSet set :
             {ContainerSet::Main, ContainerSet::Mtp, ContainerSet::Indexer}) {
            int number = 0;
            for (std::size_t file = 0; file < source_.checkpoint->files().size(); ++file) {
                ContainerFilePlan plan;
                plan.order = ContainerOrder::Reference;
                for (const Job& job : jobs_) {
                    if (job.tensor.set == set &&
                        job.source->payload.file == static_cast<std::int32_t>(file)) {
                        plan.tensors.push_back(job.tensor);
                    }
                }
                if (!plan.tensors.empty()) {
                    plan.file_name = container_file_name(set, number++);
                    plans.push_back(std::move(plan));
                }
            }
        }
        return plans;
    }

    Status write_files() {
        std::vector<ContainerTensor> tensors;
        for (const Job& job : jobs_) {
            tensors.push_back(job.tensor);
            sources_.emplace(job.tensor.name, job.source);
        }
        const std::vector<ContainerFilePlan> plans =
            options_.order == ContainerOrder::Reference
                ? reference_plans()
                : plan_container(std::move(tensors), container_metadata(source_.identity),
                                 options_.max_file_bytes);
        for (const ContainerFilePlan& plan : plans) {
            if (Status written = write_file(plan); !written) {
                return std::move(written).error().in(plan.file_name);
            }
        }
        return {};
    }

    Status write_file(const ContainerFilePlan& plan) {
        Result<ContainerFileWriter> writer = ContainerFileWriter::create(out_, plan);
        if (!writer) {
            return std::move(writer).error();
        }
        for (const ContainerTensor& tensor : plan.tensors) {
            if (stop_.stop_requested()) {
                return Error{ErrorCode::Cancelled, "the conversion was stopped", "",
                             "Remove the unfinished folder, or convert again into a new one."};
            }
            const TensorSource& source = *sources_.at(tensor.name);
            Result<RawWeight> weight = source_.checkpoint->read_weight(source, tensor.format);
            if (!weight) {
                return std::move(weight).error();
            }
            if (Status written = writer->write(weight->matrix); !written) {
                return written;
            }
            done_ += weight->matrix.rows * (raw_row_bytes(tensor.format.kind, tensor.cols) +
                                            4 * scales_per_row(tensor.format, tensor.cols));
            if (progress_) {
                progress_({done_, total_, tensor.name});
            }
        }
        return writer->finish();
    }

    Status copy_side_files() {
        // config.json last: without it the folder is not taken for a model.
        for (const char* name :
             {"tokenizer.json", "tokenizer_config.json", "generation_config.json",
              "chat_template.jinja", "chat_template.json", "config.json"}) {
            const fs::path from = source_.path / name;
            std::error_code error;
            if (!fs::exists(from, error)) {
                continue;
            }
            Result<std::string> text = read_folder_text(from, kMaxSideFileBytes);
            if (!text) {
                return std::move(text).error();
            }
            Result<AtomicFile> file = AtomicFile::create(out_ / name);
            if (!file) {
                return std::move(file).error();
            }
            if (Status written = file->write(*text); !written) {
                return written;
            }
            if (Status committed = file->commit(); !committed) {
                return committed;
            }
        }
        return {};
    }

    const ModelFolder& source_;
    const ContainerOptions& options_;
    fs::path out_;
    const std::function<void(const ConvertProgress&)>& progress_;
    std::stop_token stop_;
    std::vector<Job> jobs_;
    std::map<std::string, const TensorSource*> sources_;
    std::int64_t total_ = 0;
    std::int64_t done_ = 0;
};

}  // namespace

Status write_container(const ModelFolder& source,
                       const ContainerOptions& options,
                       const fs::path& out,
                       const std::function<void(const ConvertProgress&)>& progress,
                       std::stop_token stop) {
    return Converter(source, options, out, progress, std::move(stop)).run();
}

}  // namespace terrace
