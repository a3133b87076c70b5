"""Why a rank was late, by the sensors that were read beside the job."""
